# SPDX-License-Identifier: Apache-2.0
"""OpenAI's own Python client against a coordinator."""

import asyncio
import concurrent.futures
import hashlib
import json
import os
import tempfile
import unittest
import urllib.request

import openai

from process_cluster import MODEL, PATIENCE_S, Cluster, UpCluster, wait_until

HOSTILE = "<script>alert(1)</script>\u0000\u0007\u202etxt\u2066 \"quoted\" \\ é 😀"


def client(cluster, key="none", **options):
    options.setdefault("timeout", PATIENCE_S)
    return openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key=key,
                         max_retries=0, **options)


def call(cluster, method, request):
    """An RPC over HTTP."""
    with urllib.request.urlopen(urllib.request.Request(
            f"http://{cluster.http}/api/{method}",
            data=json.dumps(request).encode(),
            headers={"Content-Type": "application/json"}),
            timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def num_requests(cluster):
    with urllib.request.urlopen(f"http://{cluster.http}/health",
                                timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())["requests"]


def text_of(stream, index=0):
    return "".join(choice.text for chunk in stream for choice in chunk.choices
                   if choice.index == index)


def content_of(stream, index=0):
    return "".join(choice.delta.content or "" for chunk in stream
                   for choice in chunk.choices if choice.index == index)


class OpenAiTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = UpCluster("--drafter", "ngram")
        cls.client = client(cls.cluster)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()

    def complete(self, prompt="the cat", **options):
        options.setdefault("max_tokens", 24)
        options.setdefault("temperature", 0)
        return self.client.completions.create(model=self.model, prompt=prompt,
                                              **options)

    def chat(self, content="hi", **options):
        options.setdefault("max_tokens", 24)
        options.setdefault("temperature", 0)
        options.setdefault("messages", [{"role": "user", "content": content}])
        return self.client.chat.completions.create(model=self.model, **options)

    def refused(self, param, create, *arguments, **options):
        with self.assertRaises(openai.BadRequestError) as raised:
            create(*arguments, **options)
        self.assertEqual(raised.exception.status_code, 400)
        self.assertEqual(raised.exception.param, param)
        self.assertEqual(raised.exception.type, "invalid_request_error")
        return raised.exception

    # Models.

    def test_models_are_listed(self):
        models = self.client.models.list().data
        self.assertEqual([model.object for model in models], ["model"])

    def test_a_model_is_retrieved(self):
        model = self.client.models.retrieve(self.model)
        self.assertEqual(model.id, self.model)
        self.assertEqual(model.owned_by, "specwire")

    def test_an_unknown_model_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.models.retrieve("none")
        self.assertEqual(raised.exception.code, "model_not_found")

    # Texts.

    def test_a_greedy_completion_is_that_of_grpc(self):
        expected = self.cluster.generate("--max_tokens", 24, "the cat")
        answer = self.complete()
        self.assertEqual(answer.choices[0].text, expected["text"])
        self.assertEqual(answer.object, "text_completion")
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertEqual(answer.system_fingerprint, expected["model_digest"])

    def test_a_sampled_completion_is_that_of_grpc(self):
        expected = self.cluster.json("generate", "--max_tokens", 24, "--seed",
                                     5, "--temperature", 1, "the cat")
        answer = self.complete(temperature=1, seed=5)
        self.assertEqual(answer.choices[0].text, expected["text"])

    def test_a_streamed_completion_is_the_whole_one(self):
        for seed in range(4):
            whole = self.complete(temperature=1, seed=seed)
            streamed = self.complete(temperature=1, seed=seed, stream=True)
            self.assertEqual(text_of(streamed), whole.choices[0].text)

    def test_a_streamed_chat_is_the_whole_one(self):
        for seed in range(4):
            whole = self.chat(temperature=1, seed=seed)
            streamed = list(self.chat(temperature=1, seed=seed, stream=True))
            self.assertEqual(content_of(streamed),
                             whole.choices[0].message.content)
            self.assertEqual(streamed[0].choices[0].delta.role, "assistant")
            self.assertEqual(streamed[-1].choices[0].finish_reason,
                             whole.choices[0].finish_reason)
            self.assertTrue(whole.id.startswith("chatcmpl-"))

    def test_speculation_changes_no_text(self):
        options = dict(temperature=1, seed=9, max_tokens=60)
        plain = self.complete(extra_body={"speculation": {"enabled": False}},
                              **options)
        self.assertEqual(plain.metrics["speculative_decoding"]
                         ["num_draft_tokens"], 0)
        self.assertEqual(self.complete(**options).choices[0].text,
                         plain.choices[0].text)

    def test_the_seed_decides(self):
        texts = [self.complete(temperature=1, seed=seed).choices[0].text
                 for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_a_seed_that_was_made_up_is_told(self):
        first = self.complete(temperature=1)
        again = self.complete(temperature=1, seed=first.seed)
        self.assertEqual(first.choices[0].text, again.choices[0].text)

    def test_several_choices(self):
        answer = self.complete(temperature=1, seed=3, n=3)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertEqual(
            answer.choices[0].text,
            self.complete(temperature=1, seed=3).choices[0].text)
        self.assertEqual(answer.usage.completion_tokens, 72)

    def test_several_choices_streamed(self):
        whole = self.complete(temperature=1, seed=3, n=3)
        streamed = list(self.complete(temperature=1, seed=3, n=3, stream=True))
        for choice in whole.choices:
            self.assertEqual(text_of(streamed, choice.index), choice.text)

    def test_prompts_as_token_ids(self):
        ids = call(self.cluster, "Tokenize", {"text": "the cat"})["tokenIds"]
        text = self.complete().choices[0].text
        self.assertEqual(self.complete(ids).choices[0].text, text)
        self.assertEqual(self.complete([ids]).choices[0].text, text)

    def test_one_prompt_in_a_list(self):
        self.assertEqual(self.complete(["the cat"]).choices[0].text,
                         self.complete().choices[0].text)

    def test_two_prompts_are_refused(self):
        self.refused("prompt", self.complete, ["a", "b"])

    def test_content_in_parts(self):
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        self.assertEqual(self.chat(parts).choices[0].message.content,
                         self.chat("a\nb").choices[0].message.content)

    def test_a_developer_is_the_system(self):
        texts = [self.chat(messages=[
            {"role": role, "content": "be brief"},
            {"role": "user", "content": "hi"}]).choices[0].message.content
            for role in ("developer", "system")]
        self.assertEqual(texts[0], texts[1])

    def test_hostile_text_is_text(self):
        answer = self.complete(HOSTILE, echo=True)
        self.assertTrue(answer.choices[0].text.startswith(HOSTILE))
        streamed = self.complete(HOSTILE, echo=True, stream=True)
        self.assertEqual(text_of(streamed), answer.choices[0].text)
        self.assertTrue(self.chat(HOSTILE).choices[0].message.content)

    def test_characters_split_over_tokens_arrive_whole(self):
        ids = call(self.cluster, "Tokenize", {"text": "é"})["tokenIds"]
        self.assertEqual(len(ids), 2)
        # Both bytes are far likelier than all else, and take turns.
        options = dict(logit_bias={str(i): 100 for i in ids},
                       frequency_penalty=2, max_tokens=40)
        whole = self.complete(**options).choices[0].text
        self.assertIn("éé", whole)
        chunks = list(self.complete(stream=True, **options))
        self.assertEqual(text_of(chunks), whole)
        self.assertTrue(any("é" in choice.text for chunk in chunks
                            for choice in chunk.choices))

    # Ends.

    def test_max_tokens_is_a_length(self):
        answer = self.complete(max_tokens=3)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_max_completion_tokens(self):
        answer = self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": "hi"}],
            max_completion_tokens=3)
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_a_stop_text(self):
        text = self.complete().choices[0].text
        stop = text[5:7]
        answer = self.complete(stop=stop)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].text, text[:text.index(stop)])
        self.assertEqual(text_of(self.complete(stop=stop, stream=True)),
                         answer.choices[0].text)

    def test_long_lists_of_stop_texts(self):
        text = self.complete().choices[0].text
        stop = text[5:7]
        never = [chr(ord("a") + i) * 256 for i in range(15)]
        answer = self.complete(stop=never + [stop])
        self.assertEqual(answer.choices[0].text, text[:text.index(stop)])

    def test_too_many_stop_texts_are_refused(self):
        self.refused("stop", self.complete, stop=["x"] * 17)

    def test_stop_token_ids(self):
        ids = self.cluster.generate("--max_tokens", 24, "the cat")["token_ids"]
        answer = self.complete(extra_body={"stop_token_ids": [ids[4]]})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].stop_reason, ids[4])

    # Sampling.

    def test_logit_bias_forces_a_token(self):
        ids = call(self.cluster, "Tokenize", {"text": "q"})["tokenIds"]
        answer = self.complete(logit_bias={str(ids[0]): 100}, max_tokens=5)
        self.assertEqual(answer.choices[0].text, "qqqqq")

    def test_logit_bias_bans_a_token(self):
        first = self.cluster.generate("--max_tokens", 1, "the cat")
        banned = first["token_ids"][0]
        answer = self.complete(logit_bias={str(banned): -100}, max_tokens=1,
                               logprobs=0)
        self.assertNotEqual(answer.choices[0].text, first["text"])

    def test_our_own_parameters(self):
        answer = self.complete(temperature=2, seed=1,
                               extra_body={"top_k": 1, "min_p": 0.0,
                                           "repetition_penalty": 1.0,
                                           "min_tokens": 2})
        self.assertEqual(answer.choices[0].text,
                         self.complete().choices[0].text)

    def test_unknown_fields_are_ignored(self):
        answer = self.complete(extra_body={"new_in_2030": {"a": [1]}},
                               user="somebody")
        self.assertEqual(answer.choices[0].text,
                         self.complete().choices[0].text)

    # Log-probabilities.

    def test_logprobs_of_completions(self):
        answer = self.complete(logprobs=3)
        logprobs = answer.choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 24)
        for token, chosen, top in zip(logprobs.tokens, logprobs.token_logprobs,
                                      logprobs.top_logprobs):
            self.assertLessEqual(chosen, 0)
            # Greedy: the chosen one is the likeliest.
            self.assertEqual(max(top.values()), chosen)
            self.assertIn(token, top)
        self.assertEqual(logprobs.text_offset, sorted(logprobs.text_offset))

    def test_logprobs_of_chats(self):
        content = self.chat(logprobs=True,
                            top_logprobs=2).choices[0].logprobs.content
        self.assertEqual(len(content), 24)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob)
            self.assertEqual(bytes(token.bytes).decode(errors="replace"),
                             token.token)

    def test_streamed_logprobs_are_the_whole_ones(self):
        whole = self.complete(logprobs=1).choices[0].logprobs
        tokens, offsets = [], []
        for chunk in self.complete(logprobs=1, stream=True):
            for choice in chunk.choices:
                if choice.logprobs:
                    tokens += choice.logprobs.tokens
                    offsets += choice.logprobs.text_offset
        self.assertEqual(tokens, whole.tokens)
        self.assertEqual(offsets, whole.text_offset)

    def test_echo_with_logprobs(self):
        answer = self.complete("the", echo=True, logprobs=1, max_tokens=2)
        logprobs = answer.choices[0].logprobs
        ids = call(self.cluster, "Tokenize", {"text": "the"})["tokenIds"]
        self.assertEqual(len(logprobs.tokens), len(ids) + 2)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertEqual("".join(logprobs.tokens[:len(ids)]), "the")

    def test_every_choice_repeats_the_prompts_logprobs(self):
        # Long enough to come in several pieces.
        ids = [119, 261, 40, 41] * 60
        for _ in range(3):
            answer = self.complete(ids, echo=True, logprobs=1, max_tokens=2,
                                   n=8, temperature=1, seed=5)
            self.assertEqual([len(choice.logprobs.tokens)
                              for choice in answer.choices], [242] * 8)

    # Usage and figures.

    def test_usage_in_the_last_chunk(self):
        chunks = list(self.chat(stream=True,
                                stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 24)
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))
        self.assertIn("speculative_decoding", chunks[-1].metrics)

    def test_no_usage_unless_asked_for(self):
        self.assertTrue(all(chunk.choices for chunk in self.chat(stream=True)))

    def test_cached_tokens(self):
        prompt = "the cat sat on the mat and looked at all the other mats " * 2
        self.complete(prompt)
        usage = self.complete(prompt).usage
        self.assertGreaterEqual(usage.prompt_tokens_details.cached_tokens, 16)
        self.assertLess(usage.prompt_tokens_details.cached_tokens,
                        usage.prompt_tokens)

    def test_the_acceptance_object(self):
        ids = call(self.cluster, "Tokenize", {"text": "q"})["tokenIds"]
        answer = self.complete("qqqqqqqq", logit_bias={str(ids[0]): 100},
                               max_tokens=100)
        figures = answer.metrics["speculative_decoding"]
        self.assertGreater(figures["num_accepted_draft_tokens"], 0)
        self.assertEqual(
            sum(i * n for i, n in enumerate(figures["acceptance_histogram"])),
            figures["num_accepted_draft_tokens"])
        self.assertEqual(sum(figures["acceptance_histogram"]),
                         figures["num_spec_steps"])
        self.assertAlmostEqual(
            figures["draft_acceptance_rate"],
            figures["num_accepted_draft_tokens"] / figures["num_draft_tokens"])
        self.assertAlmostEqual(
            figures["mean_acceptance_length"],
            1 + figures["num_accepted_draft_tokens"]
            / figures["num_spec_steps"])
        self.assertGreater(answer.metrics["tokens_per_second"], 0)

    # What is refused.

    def test_an_unknown_model_in_a_request(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.completions.create(model="none", prompt="a")
        self.assertEqual(raised.exception.code, "model_not_found")

    def test_tools_are_refused(self):
        tool = {"type": "function", "function": {"name": "f"}}
        error = self.refused("tools", self.chat, tools=[tool])
        self.assertIn("not supported", error.message)
        self.refused("functions", self.chat, functions=[{"name": "f"}])
        self.refused("tool_choice", self.chat, tool_choice="required")
        self.assertTrue(self.chat(tools=[]).choices)

    def test_messages_of_tools_are_refused(self):
        self.refused("messages[0].role", self.chat, messages=[
            {"role": "tool", "content": "1", "tool_call_id": "x"}])

    def test_formats_of_answers_are_refused(self):
        self.refused("response_format", self.chat,
                     response_format={"type": "json_object"})
        self.assertTrue(self.chat(response_format={"type": "text"}).choices)

    def test_sound_and_images_are_refused(self):
        self.refused("modalities", self.chat, modalities=["text", "audio"])
        self.refused("audio", self.chat, audio={"voice": "x", "format": "wav"})
        self.refused("messages[0].content", self.chat, [
            {"type": "image_url", "image_url": {"url": "http://x"}}])

    def test_predictions_are_refused(self):
        self.refused("prediction", self.chat,
                     prediction={"type": "content", "content": "x"})

    def test_suffix_is_refused(self):
        self.refused("suffix", self.complete, suffix="x")

    def test_best_of_is_refused(self):
        self.refused("best_of", self.complete, best_of=2)
        self.assertTrue(self.complete(best_of=1).choices)

    def test_parameters_out_of_range_are_refused(self):
        self.refused("temperature", self.complete, temperature=-1)
        self.refused("top_p", self.complete, top_p=0)
        for number in (1000, 2**31 - 1, -1, -2**31):
            self.refused("n", self.complete, n=number)
        self.refused("max_tokens", self.complete, max_tokens=0)
        self.refused("logprobs", self.complete, logprobs=1000)
        self.refused("presence_penalty", self.complete, presence_penalty=9)
        self.refused("logit_bias", self.complete, logit_bias={"cat": 1})

    def test_wrong_types_are_refused(self):
        self.refused("temperature", self.complete, temperature="hot")
        self.refused("stream_options", self.complete,
                     extra_body={"stream_options": {"include_usage": True}})
        self.refused("messages", self.chat, messages="hi")
        self.refused("messages[0].role", self.chat, messages=[{"content": "x"}])

    def test_a_bad_parameter_of_a_stream_is_refused_before_it(self):
        self.refused("top_p", self.complete, top_p=7, stream=True)

    def test_a_prompt_beyond_the_context(self):
        error = self.refused("prompt", self.complete, "word " * 4000,
                             max_tokens=None)
        self.assertEqual(error.code, "context_length_exceeded")

    def test_an_empty_prompt(self):
        self.refused("prompt", self.complete, "")
        self.refused("messages", self.chat, messages=[])

    # Clients.

    def test_a_stream_that_is_closed_ends_its_request(self):
        stream = self.complete(max_tokens=None, stream=True,
                               extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        wait_until(lambda: num_requests(self.cluster) == 0,
                   "the request to end")

    def test_a_client_that_gives_up_ends_its_request(self):
        impatient = client(self.cluster, timeout=0.001)
        with self.assertRaises(openai.APITimeoutError):
            impatient.completions.create(model=self.model, prompt="a")
        impatient.close()
        wait_until(lambda: num_requests(self.cluster) == 0,
                   "the request to end")

    def test_many_at_once(self):
        expected = [self.complete(temperature=1, seed=i).choices[0].text
                    for i in range(4)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            texts = list(pool.map(
                lambda i: text_of(self.complete(temperature=1, seed=i % 4,
                                                stream=True)), range(32)))
        self.assertEqual(texts, [expected[i % 4] for i in range(32)])

    def test_the_asynchronous_client(self):
        async def run():
            async with openai.AsyncOpenAI(
                    base_url=f"http://{self.cluster.http}/v1", api_key="none",
                    timeout=PATIENCE_S, max_retries=0) as asynchronous:
                stream = await asynchronous.completions.create(
                    model=self.model, prompt="the cat", max_tokens=24,
                    temperature=0, stream=True)
                return "".join([chunk.choices[0].text
                                async for chunk in stream])
        self.assertEqual(asyncio.run(run()), self.complete().choices[0].text)

    def test_no_other_sites_page_may_read(self):
        answer = self.client.completions.with_raw_response.create(
            model=self.model, prompt="a", max_tokens=1,
            extra_headers={"Origin": "http://elsewhere.example"})
        self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
        self.assertIn("default-src 'none'",
                      answer.headers["content-security-policy"])
        self.assertNotIn("access-control-allow-origin", answer.headers)


class OpenAiKeyTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", prefix="specwire-")
        cls.file.write(hashlib.sha256(b"right").hexdigest() + "  anna\n")
        cls.file.flush()
        cls.cluster = UpCluster("--drafter", "none", "--api_keys",
                                cls.file.name)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()
        cls.file.close()

    def test_the_right_key(self):
        with client(self.cluster, "right") as user:
            model = user.models.list().data[0].id
            answer = user.completions.create(model=model, prompt="a",
                                             max_tokens=2)
            self.assertEqual(answer.usage.completion_tokens, 2)

    def test_a_wrong_key(self):
        with client(self.cluster, "wrong") as user:
            with self.assertRaises(openai.AuthenticationError) as raised:
                user.completions.create(model="tiny", prompt="a")
            self.assertEqual(raised.exception.code, "invalid_api_key")
            with self.assertRaises(openai.AuthenticationError):
                user.models.list()
            with self.assertRaises(openai.AuthenticationError):
                user.chat.completions.create(
                    model="tiny", stream=True,
                    messages=[{"role": "user", "content": "hi"}])


class OpenAiDetailedTest(unittest.TestCase):

    def test_single_steps_add_up_to_the_figures(self):
        with Cluster("--per_request_spec_decode_metrics", "detailed",
                     local_drafter="suffix") as cluster:
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.wait_serving("verifier-0")
            ids = call(cluster, "Tokenize", {"text": "q"})["tokenIds"]
            with client(cluster) as user:
                model = user.models.list().data[0].id
                answer = user.completions.create(
                    model=model, prompt="qqqqqqqq", max_tokens=60, n=2,
                    logit_bias={str(ids[0]): 100})
        figures = answer.metrics["speculative_decoding"]
        self.assertGreater(figures["num_spec_steps"], 0)
        self.assertEqual(len(figures["per_step_drafted"]),
                         figures["num_spec_steps"])
        self.assertEqual(sum(figures["per_step_drafted"]),
                         figures["num_draft_tokens"])
        self.assertEqual(sum(figures["per_step_accepted"]),
                         figures["num_accepted_draft_tokens"])
        self.assertEqual(
            sum(map(sum, figures["acceptance_histogram_by_draft_length"]
                    .values())), figures["num_spec_steps"])


class OpenAiRealModelTest(unittest.TestCase):

    def test_a_real_model_answers_alike_whole_streamed_and_over_grpc(self):
        with UpCluster(model=MODEL) as cluster, client(cluster) as user:
            model = user.models.list().data[0].id
            question = "Name three colours, each with an emoji."
            options = dict(model=model, temperature=0, max_tokens=32,
                           messages=[{"role": "user", "content": question}])
            expected = cluster.generate("--chat", "--max_tokens", 32, question)
            whole = user.chat.completions.create(**options)
            self.assertEqual(whole.choices[0].message.content,
                             expected["text"])
            streamed = user.chat.completions.create(stream=True, **options)
            self.assertEqual(content_of(streamed), expected["text"])


if __name__ == "__main__":
    os.environ.pop("OPENAI_API_KEY", None)
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Streams a completion from a Specwire cluster, goes on elsewhere when the
coordinator is lost, and prints the acceptance figures. See README.md."""

import argparse
import pathlib
import random
import sys
import time

import grpc

# Where README.md's command puts the generated modules.
sys.path.insert(0, str(pathlib.Path(__file__).parent / "generated"))

from specwire.v1 import generation_pb2, generation_pb2_grpc  # noqa: E402

# How long to look for a coordinator at the start, and for one that goes on
# after a loss: nodes need a moment to join one that was restarted.
START_S = 5
PATIENCE_S = 15
# How long one address has to answer, and until the user is told of the wait.
CONNECT_S = 3
NOTICE_S = 1
# A peer that has vanished without a word is noticed.
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 10000),
    ("grpc.keepalive_timeout_ms", 5000),
]


class Completion:
    """One completion, whoever serves it."""

    def __init__(self, addresses, request):
        self.addresses = addresses
        self.request = request
        # What any coordinator needs to go on: the first message, and the
        # tokens so far.
        self.started = None
        self.token_ids = []
        self.finished = None
        self.resumes = 0
        self.told_wait = False

    def run(self, on_text):
        """Streams to the end. Raises grpc.RpcError if that fails."""
        turn = 0
        deadline = time.monotonic() + START_S
        while True:
            address = self.addresses[turn % len(self.addresses)]
            known = len(self.token_ids)
            try:
                self._stream(address, on_text)
                return
            except grpc.RpcError as error:
                # Only what says that nobody answers is worth another try: an
                # error of a coordinator that lives is the answer.
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                if len(self.token_ids) > known:
                    deadline = time.monotonic() + PATIENCE_S
                    self.told_wait = False
                if time.monotonic() > deadline:
                    raise
                self._tell_wait(error.details())
            turn += 1
            time.sleep(random.uniform(0.05, 0.3))

    def _stream(self, address, on_text):
        with grpc.insecure_channel(address, CHANNEL_OPTIONS) as channel:
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            # No deadline for the whole: a long completion is no fault. But a
            # coordinator that is not there must not be waited for.
            self._connect(channel, address)
            for response in stub.Generate(self._request()):
                self._take(response, on_text)
        if self.finished is None:
            raise Unreachable(address)

    def _connect(self, channel, address):
        ready = grpc.channel_ready_future(channel)
        for wait in (NOTICE_S, CONNECT_S - NOTICE_S):
            try:
                ready.result(timeout=wait)
                return
            except grpc.FutureTimeoutError:
                self._tell_wait(f"{address} does not answer")
        raise Unreachable(address)

    def _tell_wait(self, reason):
        """Says once for each loss why nothing happens."""
        if not self.told_wait:
            self.told_wait = True
            # Behind text that has come, on a line of its own.
            start = "\n" if self.token_ids else ""
            print(f"{start}{reason}; waiting for a coordinator at "
                  f"{' or '.join(self.addresses)}", file=sys.stderr)

    def _request(self):
        """The request, or what goes on with it behind the tokens so far."""
        if self.started is None:
            return self.request
        request = generation_pb2.GenerateRequest()
        request.CopyFrom(self.request)
        request.model = self.started.model
        request.token_ids.ids[:] = self.started.prompt_token_ids
        request.sampling.CopyFrom(self.started.sampling)
        request.stop.CopyFrom(self.started.stop)
        request.resume_token_ids[:] = self.token_ids
        self.resumes += 1
        return request

    def _take(self, response, on_text):
        event = response.WhichOneof("event")
        if event == "started":
            if self.started is None:
                self.started = response.started
            elif response.started.model_digest != self.started.model_digest:
                raise RuntimeError("the other coordinator has another model")
        elif event == "delta":
            self.token_ids.extend(response.delta.token_ids)
            on_text(response.delta.text)
        elif event == "finished":
            self.finished = response.finished
            on_text(response.finished.text)


class Unreachable(grpc.RpcError):
    """A coordinator that does not answer, as gRPC tells it."""

    def __init__(self, address):
        super().__init__(f"{address} does not answer")
        self._address = address

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return f"{self._address} does not answer"


def figures(completion):
    """What became of the drafts, in one line."""
    stats = completion.finished.speculation
    usage = completion.finished.usage
    text = (f"{usage.completion_tokens} tokens, acceptance rate "
            f"{100 * stats.draft_acceptance_rate:.1f} % "
            f"({stats.num_accepted_draft_tokens} of {stats.num_draft_tokens}), "
            f"mean accepted length {stats.mean_acceptance_length:.2f}, drafter "
            f"{stats.drafter or 'none'}")
    if completion.resumes:
        text += (f"; resumed {completion.resumes} times, the figures are those "
                 "of the last part")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", default="127.0.0.1:7070",
                        help="HOST:PORT[,HOST:PORT...]")
    parser.add_argument("--max_tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ignore_eos", action="store_true")
    parser.add_argument("prompt")
    flags = parser.parse_args()

    request = generation_pb2.GenerateRequest(text=flags.prompt)
    request.sampling.temperature = flags.temperature
    request.sampling.seed = flags.seed
    request.stop.max_tokens = flags.max_tokens
    request.stop.ignore_eos = flags.ignore_eos

    def show(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    completion = Completion(flags.coordinator.split(","), request)
    try:
        completion.run(show)
    except grpc.RpcError as error:
        print(f"\n{error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print()
    print(figures(completion), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

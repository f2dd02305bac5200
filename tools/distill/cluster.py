# SPDX-License-Identifier: Apache-2.0
"""A cluster's GenerationService, called from Python."""

import importlib
import pathlib
import sys
import tempfile

import grpc.aio
from grpc_tools import protoc

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FILES = ["types", "generation"]


def _compile(out):
    arguments = ["protoc", f"-I{_ROOT / 'proto'}", f"--python_out={out}",
                 f"--grpc_python_out={out}"]
    arguments += [f"specwire/v1/{name}.proto" for name in _FILES]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")


_stubs = tempfile.TemporaryDirectory(prefix="specwire_stubs_")
_compile(_stubs.name)
sys.path.insert(0, _stubs.name)
types = importlib.import_module("specwire.v1.types_pb2")
generation = importlib.import_module("specwire.v1.generation_pb2")
_grpc = importlib.import_module("specwire.v1.generation_pb2_grpc")


class Completion:
    """What one request returned."""

    def __init__(self):
        self.prompt = []  # token ids
        self.tokens = []  # token ids
        self.text = ""
        self.top_ids = []  # for each token, candidate ids, best first
        self.top_logprobs = []  # the same, natural logarithms


class Cluster:
    """One channel to a coordinator. Used on one event loop."""

    def __init__(self, address):
        self._channel = grpc.aio.insecure_channel(
            address, options=[("grpc.max_receive_message_length", 1 << 26)])
        self._stub = _grpc.GenerationServiceStub(self._channel)

    async def close(self):
        await self._channel.close()

    async def model(self):
        """What the cluster serves: a ModelDescription."""
        reply = await self._stub.ListModels(generation.ListModelsRequest(),
                                            timeout=30.0)
        if len(reply.models) != 1:
            raise RuntimeError(f"{len(reply.models)} models are served, not 1")
        return reply.models[0].model

    async def generate(self, request, timeout=600.0):
        """The whole completion; raises grpc.aio.AioRpcError."""
        result = Completion()
        async for message in self._stub.Generate(request, timeout=timeout):
            event = message.WhichOneof("event")
            if event == "started":
                result.prompt = list(message.started.prompt_token_ids)
            elif event == "delta":
                result.tokens += message.delta.token_ids
                result.text += message.delta.text
                for position in message.delta.logprobs:
                    result.top_ids.append([t.token_id for t in position.top])
                    result.top_logprobs.append(
                        [t.logprob for t in position.top])
            elif event == "finished":
                result.text += message.finished.text
        return result

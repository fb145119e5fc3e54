"""Measures one peer on one model, as `russet bench --json` measures russet, and prints the same keys.

    driver.py version PEER                    what is installed
    driver.py requantise FROM TO              llama.cpp's Q4_0 of another GGUF file
    driver.py bench PEER MODEL THREADS PROMPT GENERATE DEPTH TRIALS SEED

A trial processes PROMPT random tokens and then generates GENERATE more, both behind DEPTH tokens that are not measured. The
first trial warms up and is not counted. The model is opened once.
"""

import ctypes
import importlib
import importlib.metadata
import json
import random
import sys
import time


def clock():
    return time.perf_counter()


def rate(tokens, seconds):
    return tokens / seconds if tokens and seconds > 0 else 0.0


def peak_rss():
    """The most memory this process has held, in bytes; the interpreter and its libraries are about 30 MiB of it."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


class LlamaCpp:
    """llama.cpp through its C interface: no sampling, logits of the last token only, flash attention on."""

    def __init__(self, path, threads, room):
        import llama_cpp

        self.api = api = llama_cpp
        silence = api.llama_log_callback(lambda level, text, data: None)
        api.llama_log_set(silence, ctypes.c_void_p(0))
        self.silence = silence
        api.llama_backend_init()
        model = api.llama_model_default_params()
        model.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(path.encode(), model)
        if not self.model:
            raise RuntimeError("llama.cpp does not open " + path)
        context = api.llama_context_default_params()
        context.n_ctx = room
        context.n_batch = 2048
        context.n_ubatch = 512
        context.n_threads = context.n_threads_batch = threads
        # A switch in older versions, a choice of three in newer ones: 1 is "on" in both.
        names = [name for name, _ in context._fields_]
        setattr(context, "flash_attn_type" if "flash_attn_type" in names else "flash_attn", 1)
        self.context = api.llama_init_from_model(self.model, context)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context of %d tokens" % room)
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))

    def feed(self, tokens):
        for start in range(0, len(tokens), 2048):
            part = tokens[start : start + 2048]
            batch = (self.api.llama_token * len(part))(*part)
            if self.api.llama_decode(self.context, self.api.llama_batch_get_one(batch, len(part))):
                raise RuntimeError("llama_decode fails")
        self.api.llama_get_logits_ith(self.context, -1)  # waits until they are there

    def trial(self, context, prompt, more):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        self.feed(context)
        start = clock()
        self.feed(prompt)
        read = clock()
        for token in more:
            self.feed([token])
        return read - start, clock() - read


class OpenVino:
    """OpenVINO GenAI through its pipeline, which reports when the tokens came."""

    def __init__(self, path, threads, room):
        import openvino
        import openvino_genai

        self.openvino, self.genai = openvino, openvino_genai
        self.pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
        self.vocabulary = 32000  # its tokenizer tells no size; no common vocabulary is smaller

    def run(self, tokens, count):
        """Seconds until the first token, and from the first to the last of `count`."""
        import numpy

        ids = numpy.array([tokens], dtype=numpy.int64)
        inputs = self.genai.TokenizedInputs(
            self.openvino.Tensor(ids), self.openvino.Tensor(numpy.ones_like(ids))
        )
        config = self.genai.GenerationConfig()
        config.max_new_tokens = count
        config.min_new_tokens = count
        config.ignore_eos = True
        config.do_sample = False
        metrics = self.pipeline.generate(inputs, config).perf_metrics
        if metrics.get_num_generated_tokens() != count:
            raise RuntimeError("OpenVINO generates %d tokens of %d" % (metrics.get_num_generated_tokens(), count))
        intervals = metrics.get_tpot().mean * (count - 1) if count > 1 else 0.0
        return metrics.get_ttft().mean / 1000, intervals / 1000

    def trial(self, context, prompt, more):
        # The pipeline keeps prefixes, so the tokens of both calls differ: else the second would not process its context.
        behind = self.run(context, 1)[0] if context else 0.0
        others = list(reversed(context))
        first, rest = self.run(others + prompt or [0], len(more) + 1)
        return first - behind, rest


# Package, module, how it is driven.
PEERS = {
    "llama.cpp": ("llama-cpp-python", "llama_cpp", LlamaCpp),
    "openvino": ("openvino-genai", "openvino_genai", OpenVino),
}


def bench(peer, path, threads, prompt, generate, depth, trials, seed):
    _, module, kind = PEERS[peer]
    importlib.import_module(module)  # the interpreter's work, not the peer's
    start = clock()
    engine = kind(path, threads, depth + prompt + generate + 8)
    ready = clock()
    engine.trial([], [1], [])
    first = clock()
    random.seed(seed)
    counted = []
    for number in range(trials + 1):
        draw = lambda count: [random.randrange(engine.vocabulary) for _ in range(count)]
        # Generation without a prompt goes on from one token, which belongs to neither.
        tokens = draw(max(prompt, 0 if depth else 1))
        read, wrote = engine.trial(draw(depth), tokens, draw(generate))
        if number:
            counted.append({"prompt_tps": rate(prompt, read), "gen_tps": rate(generate, wrote)})
    return {
        "trials": counted,
        "prepare_seconds": ready - start,
        "warmup_seconds": first - ready,
        "peak_rss": peak_rss(),
    }


def version(peer):
    package, module, _ = PEERS[peer]
    importlib.import_module(module)
    return {"version": importlib.metadata.version(package)}


def requantise(source, target):
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        raise RuntimeError("llama.cpp does not requantise " + source)
    return {}


def main(verb, *words):
    if verb == "bench":
        return bench(words[0], words[1], *map(int, words[2:]))
    return {"version": version, "requantise": requantise}[verb](*words)


if __name__ == "__main__":
    print("\n" + json.dumps(main(*sys.argv[1:])))

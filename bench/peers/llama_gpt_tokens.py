#!/usr/bin/env python3
"""The next token of texts by a GPT-2 in llama.cpp, as it comes, as a contender; see gpt_tokens.cpp.

usage: llama_gpt_tokens.py float|bf16 THREADS next|whole|load FOLDER SEQUENCES

Writes the problem's parameters as GGUF beside them, in a process of its own, so that its memory is not
counted. llama.cpp keeps keys and values in fp16 and looks GELU up in a table of fp16, so its logits are
further from exact than those of others, and its choice of the next token is compared as well.
"""

import subprocess
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy

from turns import require_difference, take_turns, timed_by_call

HEADS, PIECES = 12, 8
ERROR = 4  # of ggml's levels


@llama_cpp.llama_log_callback
def tell_errors(level, text, _):
    if level == ERROR:
        print(text.decode(errors="replace"), end="", file=sys.stderr)

LAYERS = {  # of a block, by llama.cpp's names; the first one is several of ours below each other
    "attn_qkv": ["0.1.0", "0.1.1", "0.1.2"], "attn_norm": ["0.0"], "attn_output": ["0.2"],
    "ffn_norm": ["1.0"], "ffn_up": ["1.1"], "ffn_down": ["1.3"]}


def load(folder, name):
    return numpy.load(folder / f"{name}.npy")


def write(dtype, folder, file):
    """The parameters of the folder as a model of llama.cpp."""
    tokens, positions = load(folder, "0.weight"), load(folder, "1.weight")
    blocks = len(list(folder.glob("4.*.0.0.weight.npy")))
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_context_length(len(positions))
    writer.add_embedding_length(tokens.shape[1])
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(4 * tokens.shape[1])
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("no_vocab")

    def add(name, values, is_table=False):
        if dtype == "bf16" and values.ndim > 1 and not is_table:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)

    add("token_embd.weight", tokens)
    add("position_embd.weight", positions, is_table=True)
    for what in ("weight", "bias"):
        add(f"output_norm.{what}", load(folder, f"5.{what}"))
        for block in range(blocks):
            for name, ours in LAYERS.items():
                add(f"blk.{block}.{name}.{what}",
                    numpy.concatenate([load(folder, f"4.{block}.{layer}.{what}") for layer in ours]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Texts:
    """Sequences of which llama.cpp keeps the keys and values, [sequence, token] at a time."""

    def __init__(self, file, threads, sequences, tokens):
        parameters = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(file).encode(), parameters)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = sequences * tokens
        options.n_seq_max = sequences
        options.n_threads = options.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def end(self):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def read(self, ids, begin):
        """Of each sequence the logits of the last token, in memory that the next call overwrites; `ids` are
        its tokens from `begin` on."""
        batch = llama_cpp.llama_batch_init(ids.size, 0, 1)
        batch.n_tokens = ids.size
        for i, ((sequence, token), number) in enumerate(numpy.ndenumerate(ids)):
            batch.token[i], batch.pos[i] = int(number), begin + token
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = token == ids.shape[1] - 1
        if llama_cpp.llama_decode(self.context, batch) != 0:
            sys.exit("llama.cpp could not read these tokens")
        lasts = range(ids.shape[1] - 1, ids.size, ids.shape[1])
        logits = [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i),
                                           (self.vocabulary,)) for i in lasts]
        llama_cpp.llama_batch_free(batch)
        return logits

    def shorten(self, sequences, tokens):
        for sequence in range(sequences):
            llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self.context), sequence, tokens, -1)


def main(dtype, threads, what, folder, sequences):
    folder, sequences = Path(folder), int(sequences)
    file = folder / f"{dtype}.gguf"
    if not file.exists():
        subprocess.run([sys.executable, __file__, "write", dtype, folder, file], check=True)
    print(f"version llama.cpp of llama-cpp-python {llama_cpp.__version__}")
    llama_cpp.llama_log_set(tell_errors, None)
    ids = load(folder, "ids")
    pieces = ids[:-sequences].reshape(PIECES, sequences, -1)
    behind = PIECES * pieces.shape[2]
    texts = Texts(file, int(threads), sequences, behind + 1)
    before, following = pieces.swapaxes(0, 1).reshape(sequences, -1), ids[-sequences:, None]
    if what != "next":
        before, following = before[:, :0], numpy.concatenate((before, following), 1)
    for begin in range(0, before.shape[1], pieces.shape[2]):
        texts.read(before[:, begin:begin + pieces.shape[2]], begin)

    def step():
        nonlocal texts
        if what == "load":
            texts.end()
            texts = Texts(file, int(threads), sequences, behind + 1)
        logits = texts.read(following, before.shape[1])
        texts.shorten(sequences, before.shape[1])
        return logits

    exact, got = load(folder, "y").reshape(sequences, -1), numpy.stack(step())
    require_difference("y", float(numpy.linalg.norm(got - exact) / numpy.linalg.norm(exact)),
                       dtype == "bf16", 1 / 128)
    if dtype == "float" and (got.argmax(1) != exact.argmax(1)).any():
        sys.exit("another token would be chosen")
    take_turns(timed_by_call(step, step))


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "write":
        write(sys.argv[2], *map(Path, sys.argv[3:]))
    elif len(sys.argv) == 6:
        main(*sys.argv[1:])
    else:
        sys.exit(__doc__)

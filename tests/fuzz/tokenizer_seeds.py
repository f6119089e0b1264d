"""Writes the seeds of the tokenizer_json fuzzer: python tests/fuzz/tokenizer_seeds.py."""

import json
import pathlib

CORPUS = pathlib.Path(__file__).parent / "corpus" / "tokenizer_json"

CHARS = [bytes([b]).decode("latin-1") for b in [*range(33, 127), *range(161, 173), *range(174, 256)]]
CHARS += [chr(256 + i) for i in range(256 - len(CHARS))]  # the byte-level alphabet
TOKENS = CHARS + ["th", "the", "\u0120the", "\u2581", "\u2581a", "<unk>", "<0xE2>", "<0x82>", "<0xAC>"]
VOCAB = {text: i for i, text in enumerate(TOKENS)}


def added(content, **flags):
    return {"id": len(TOKENS) + sum(content.encode()) % 7, "content": content, **flags}


def bpe(merges, **fields):
    return {"type": "BPE", "vocab": VOCAB, "merges": merges, **fields}


def write(name, text="The  caf\u00e9 1234\n", **parts):
    data = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    (CORPUS / name).write_bytes(data + b"\0" + (text if isinstance(text, bytes) else text.encode()))


def split(pattern, behavior="Isolated", **fields):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False, **fields}


CORPUS.mkdir(parents=True, exist_ok=True)
MERGES = [["t", "h"], ["th", "e"], ["\u0120", "the"]]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
write("byte_level", b"the the'll \xff\xe2\x82", model=bpe(MERGES), pre_tokenizer={"type": "ByteLevel"},
      decoder={"type": "ByteLevel"})
write("llama3", model=bpe(MERGES, ignore_merges=True), decoder={"type": "ByteLevel"}, pre_tokenizer={
    "type": "Sequence", "pretokenizers": [split({"Regex": LLAMA3}), {"type": "ByteLevel", "use_regex": False}]})
write("steps", "AbC \u00c5e\u0301, <m> x<s>", model=bpe([], unk_token="<unk>", fuse_unk=True), added_tokens=[
    added("<m>", lstrip=True, rstrip=True, normalized=False), added("x", single_word=True), added("<s>", special=True)],
      normalizer={"type": "Sequence", "normalizers": [
          {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip"},
          {"type": "Replace", "pattern": {"Regex": "b+"}, "content": "c"}]},
      pre_tokenizer={"type": "Sequence", "pretokenizers": [
          split({"Regex": r"\w+|\b[^a-z&&\S]"}, "MergedWithNext", invert=True), split({"String": "c"}, "Removed"),
          {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits", "individual_digits": True},
          {"type": "WhitespaceSplit"}, {"type": "Whitespace"}]})
write("llama2", "a \u20ac the", model=bpe([["\u2581", "a"]], byte_fallback=True, unk_token="<unk>"),
      normalizer={"type": "Sequence", "normalizers": [
          {"type": "Prepend", "prepend": "\u2581"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      decoder={"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
          {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1}]},
      post_processor={"type": "TemplateProcessing", "single": [
          {"SpecialToken": {"id": "t", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
          "special_tokens": {"t": {"id": "t", "ids": [1], "tokens": ["t"]}}})
write("unigram", "a the \u20ac", model={"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [
    [text, -i / 4] for i, text in enumerate(["<unk>", "\u2581", "a", "\u2581a", "th", "e", "the", "<0xE2>"])]},
      pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
      decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},
      normalizer={"type": "Precompiled", "precompiled_charsmap": "DAAAAAEAAAABAAAAAQAAAGEAYgA="},
      post_processor={"type": "BertProcessing", "sep": ["a", 2], "cls": ["e", 5]})

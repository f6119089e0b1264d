"""Live comparison with the tokenizers package: ids and decoded text of generated lines, and speed.

    /path/to/python tests/runtime/tokenizer/parity.py build/release/tests/tokenizer_cli [--lines=10000] [--seed=1]
        [--bench] [tokenizer.json ...]

Without files it compares the trained variants and steps that the fixtures leave out.
"""
import json
import os
import subprocess
import tempfile
import time

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

from tokenizer_lines import arguments, lines_of, replace_invalid
from tokenizer_variants import DEEPSEEK, GPT4O, SPACE, VARIANTS, byte_level, charsmap, unigram


def split_variants():
    """Every behaviour of Split, straight and inverted, and the other pre-tokenizers and normalizers."""
    behaviors = ["removed", "isolated", "contiguous", "merged_with_previous", "merged_with_next"]
    patterns = [Regex(r"\s+"), Regex(r"\p{Lu}"), Regex(r"[^\W\d_]+|\d{1,2}"), Regex(r"^.|.$"), Regex(r"\b\w"),
                Regex(r"\B."), Regex(r"(?<=a)b*"), Regex(r"[\p{L}&&[^a-z]]"), Regex("\\v|\\x{20}|\u00e9"), "the", " ",
                Regex(GPT4O), Regex(DEEPSEEK)]
    for behavior in behaviors:
        for index, pattern in enumerate(patterns):
            for invert in [False, True]:
                yield f"split {index} {behavior} {invert}", pre_tokenizers.Split(pattern, behavior, invert), None
    for behavior in behaviors:
        yield f"punctuation {behavior}", pre_tokenizers.Punctuation(behavior), None
    for pre in [pre_tokenizers.Digits(False), pre_tokenizers.Digits(True), pre_tokenizers.Whitespace(),
                pre_tokenizers.WhitespaceSplit()]:
        yield str(pre), pre, None
    for norm in [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(),
                 normalizers.Lowercase(), normalizers.Strip(), normalizers.Strip(False, True),
                 normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
                 normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace("the", "THE"),
                 normalizers.Replace(Regex("[aeiou]"), ""), normalizers.Prepend("x"), normalizers.Precompiled(charsmap("nmt_nfkc")),
                 normalizers.Precompiled(charsmap("nfkc_cf"))]:
        yield f"normalizer {norm}", None, norm


def steps():
    base = byte_level(400, pre_tokenizers.ByteLevel(add_prefix_space=False))
    base.add_special_tokens(["<s>", "<|eot|>"])
    text = base.to_str()
    for name, pre, norm in split_variants():
        tokenizer = Tokenizer.from_str(text)
        byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = byte if pre is None else pre_tokenizers.Sequence([pre, byte])
        if norm is not None:
            tokenizer.normalizer = norm
        yield name, tokenizer
    for scheme in ["always", "first", "never"]:
        for split in [False, True]:
            for norm in [None, normalizers.Strip(), normalizers.Prepend(SPACE)]:
                tokenizer = unigram()
                tokenizer.add_special_tokens(["<s>", "<mask>"])
                tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
                tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
                if norm is not None:
                    tokenizer.normalizer = norm
                yield f"metaspace {scheme} {split} {norm}", tokenizer


def run(cli, verb, path, lines):
    done = subprocess.run([cli, verb, path], input="".join(line + "\n" for line in lines).encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.decode().split("\n")[:-1], done.stderr.decode()


def compare(cli, name, tokenizer, path, lines):
    text = [replace_invalid(line) for line in lines]
    got, error = run(cli, "encode", path, [line.hex() for line in lines])
    if not got:
        print(f"{name}: refused: {error.strip()}")
        return True
    want = [" ".join(map(str, e.ids)) for e in tokenizer.encode_batch(text)]
    bad = [i for i in range(len(lines)) if i >= len(got) or got[i] != want[i]]
    plain, _ = run(cli, "decode", path, want)
    decoded = [tokenizer.decode(list(map(int, ids.split())), skip_special_tokens=True).encode().hex() for ids in want]
    bad_text = [i for i in range(len(lines)) if plain[i] != decoded[i]]
    print(f"{name}: {len(lines)} lines, {len(bad)} differ, {len(bad_text)} decode differently")
    for i in bad[:2]:
        print("  text", lines[i], "\n  want", want[i], "\n  got ", got[i] if i < len(got) else error)
    for i in bad_text[:2]:
        print("  ids", want[i], "\n  want", decoded[i], "\n  got ", plain[i])
    return not bad and not bad_text


def bench(cli, name, tokenizer, path, lines):
    text = "\n".join(replace_invalid(line) for line in lines)
    split, size = text.split("\n"), len(text.encode())
    for _ in range(3):
        start = time.perf_counter()
        for line in split:
            tokenizer.encode(line)
        middle = time.perf_counter()
        tokenizer.encode(text)
        end = time.perf_counter()
    print(f"{name}: tokenizers: lines {size / 1e6 / (middle - start):.1f} MB/s, whole "
          f"{size / 1e6 / (end - middle):.1f} MB/s")
    print(subprocess.run([cli, "bench", path], input=text.encode(), stdout=subprocess.PIPE).stdout.decode(), end="")


def main():
    parser = arguments(__doc__)
    parser.add_argument("--bench", action="store_true")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    lines = lines_of(args)
    same = True
    if args.files:
        cases = [(path, Tokenizer.from_file(path)) for path in args.files]
    else:
        cases = [(name, make()) for name, make in VARIANTS.items()] + ([] if args.bench else list(steps()))
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in cases:
            path = os.path.join(folder, "tokenizer.json")
            with open(path, "w") as file:
                json.dump(json.loads(tokenizer.to_str()), file)
            tokenizer = Tokenizer.from_file(path)
            if args.bench:
                bench(args.cli, name, tokenizer, path, lines)
            else:
                same = compare(args.cli, name, tokenizer, path, lines) and same
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())

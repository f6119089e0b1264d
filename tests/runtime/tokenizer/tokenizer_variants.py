"""Small tokenizers of every kind that Quire reads, trained on generated lines."""
import io
import json
import os
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_lines import Lines, replace_invalid

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPACE = "\u2581"


def corpus(count=4000):
    lines = Lines(7)
    return [replace_invalid(lines.line()) for _ in range(count)]


def byte_level(size, pre_tokenizer, normalizer=None, ignore_merges=False, special=()):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def gpt2():
    return byte_level(512, pre_tokenizers.ByteLevel(add_prefix_space=False), special=["<|endoftext|>"])


def llama3():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(600, pre, ignore_merges=True, special=["<s>", "<|eot|>"])
    # A token that merges do not reach, which ignore_merges finds.
    data = json.loads(tokenizer.to_str())
    vocab = data["model"]["vocab"]
    vocab[next(iter(set(["snake", "\u0120World", "wonderful", "Hello"]) - set(vocab)))] = len(vocab) + 2
    tokenizer = Tokenizer.from_str(json.dumps(data))
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", bos)])])
    return tokenizer


def qwen2():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(500, pre, normalizers.NFC(), special=["<|endoftext|>", "<|im_start|>"])
    tokenizer.add_tokens([AddedToken("camelCase", normalized=True), AddedToken("\u00e9", normalized=True)])
    return tokenizer


def mixed():
    """Odd steps, and added tokens with every flag."""
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    norm = normalizers.Sequence([normalizers.Strip(left=True, right=False), normalizers.NFKD(),
                                 normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer = byte_level(400, pre, norm)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True), AddedToken("<s>"),
                                  AddedToken("</s>")])
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False),
                          AddedToken("hello", normalized=True), AddedToken("fox", rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def sentencepiece_bpe(size):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    data["pre_tokenizer"] = None
    return data


def llama2():
    data = sentencepiece_bpe(700)
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


def mistral():
    """As llama2, with Metaspace in place of normalizers, and only some byte tokens."""
    data = sentencepiece_bpe(650)
    for byte in range(0xe0, 0xf5):
        data["model"]["vocab"].pop(f"<0x{byte:02X}>")
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                      show_progress=False)
    latin = ["".join(c for c in line if c < "\u0180") for line in corpus()]  # other characters are unknown
    tokenizer.train_from_iterator(latin, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", 1)])
    return tokenizer


def fields(message):
    """(number, value) of each length-delimited or varint field of a protobuf message."""
    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at
    at = 0
    while at < len(message):
        key, at = varint(at)
        if key & 7 == 2:
            size, at = varint(at)
            yield key >> 3, message[at:at + size]
            at += size
        elif key & 7 == 0:
            value, at = varint(at)
            yield key >> 3, value
        else:
            at += 4 if key & 7 == 5 else 8


# From, to: code points. Ligatures, deletion, a pair of characters, and rules that start alike.
CHARSMAP_RULES = [("FB01", "66 69"), ("2126", "3A9"), ("41", "61"), ("45 301", "E9"), ("FF21", "41"), ("200B", ""),
                  ("3000", "20"), ("C5", "E5"), ("212B", "C5"), ("2167", "56 49 49 49"), ("D A", "A"), ("4F60", "6C5D"),
                  ("1F1E9 1F1EA", "44 45"), ("2014", "2D 2D"), ("301", "")]


def charsmap(rule_name=None):
    """The precompiled map of a SentencePiece model: of CHARSMAP_RULES, or of a named rule."""
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w") as file:
            file.writelines(f"{a}\t{b}\n" for a, b in CHARSMAP_RULES)
        kind = {"normalization_rule_name": rule_name} if rule_name else {"normalization_rule_tsv": rules}
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["the quick brown fox jumps over the lazy dog"] * 50), model_writer=model,
            vocab_size=40, hard_vocab_limit=False, minloglevel=2, **kind)
    spec = dict(fields(model.getvalue()))[3]
    return dict(fields(spec))[2]


VARIANTS = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "mixed": mixed, "llama2": llama2, "mistral": mistral,
            "unigram": unigram}

#include "runtime/tokenizer/bpe.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/merger.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

std::string CharText(uint8_t byte) {
  std::string text;
  AppendUtf8(ByteToChar(byte), &text);
  return text;
}

// Pairs of ids, as merges list them.
class MergeTable {
 public:
  void Add(uint32_t left, uint32_t right, MergedPair pair) { pairs_[Key(left, right)] = pair; }
  void Reserve(size_t count) { pairs_.reserve(count); }

  bool Find(const Symbol& left, const Symbol& right, MergedPair* pair) const {
    const auto it =
        pairs_.find(Key(static_cast<uint32_t>(left.id), static_cast<uint32_t>(right.id)));
    if (it == pairs_.end()) return false;
    *pair = it->second;
    return true;
  }

 private:
  static uint64_t Key(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << 32 | right;
  }

  absl::flat_hash_map<uint64_t, MergedPair> pairs_;
};

// Words of characters; unknown ones become byte tokens, or the unknown token, or nothing.
class Bpe : public Model {
 public:
  Bpe(const plan::TokenizerT& spec, const Vocabulary& vocabulary, MergeTable merges)
      : vocabulary_(vocabulary),
        merges_(std::move(merges)),
        unk_id_(spec.unk_id),
        fuse_unk_(spec.fuse_unk),
        byte_fallback_(spec.byte_fallback),
        ignore_merges_(spec.ignore_merges) {}

  void Encode(absl::string_view word, std::vector<int32_t>* ids) const override {
    if (ignore_merges_) {
      if (const int32_t id = vocabulary_.Find(word); id != kNoToken) {
        ids->push_back(id);
        return;
      }
    }
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    AddSymbols(word, &symbols);
    Merger<MergeTable>(merges_).Run(&symbols);
    for (const Symbol& symbol : symbols) ids->push_back(symbol.id);
  }

 private:
  void AddSymbols(absl::string_view word, std::vector<Symbol>* symbols) const {
    Symbol unknown = {unk_id_, 0, 0};  // seen and not yet added: what follows may fuse with it
    const auto flush = [&] {
      if (unknown.bytes > 0) symbols->push_back(std::exchange(unknown, {unk_id_, 0, 0}));
    };
    for (uint32_t begin = 0; begin < word.size();) {
      const auto bytes = static_cast<uint32_t>(CharBytes(word[begin]));
      const int32_t id = vocabulary_.Find(word.substr(begin, bytes));
      if (id != kNoToken) {
        flush();
        symbols->push_back({id, begin, bytes});
      } else if (!AddBytes(word, begin, bytes, symbols) && unk_id_ != kNoToken) {
        // Byte tokens do not flush: an unknown character before them comes after them. So do the
        // tokenizers that this must agree with.
        if (!fuse_unk_) flush();
        if (unknown.bytes == 0) unknown.begin = begin;
        unknown.bytes += bytes;
      }
      begin += bytes;
    }
    flush();
  }

  bool AddBytes(absl::string_view word, uint32_t begin, uint32_t bytes,
                std::vector<Symbol>* symbols) const {
    if (!byte_fallback_) return false;
    for (uint32_t i = begin; i < begin + bytes; ++i) {
      if (vocabulary_.ByteToken(static_cast<uint8_t>(word[i])) == kNoToken) return false;
    }
    for (uint32_t i = begin; i < begin + bytes; ++i) {
      symbols->push_back({vocabulary_.ByteToken(static_cast<uint8_t>(word[i])), i, 1});
    }
    return true;
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  int32_t unk_id_;
  bool fuse_unk_;
  bool byte_fallback_;
  bool ignore_merges_;
};

// Words of bytes, each of which has a token.
class RawBytesBpe : public Model {
 public:
  RawBytesBpe(const plan::TokenizerT& spec, const Vocabulary& vocabulary, MergeTable merges)
      : merges_(std::move(merges)) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = vocabulary.Find(CharText(static_cast<uint8_t>(byte)));
    }
    if (!spec.ignore_merges) return;
    words_.reserve(static_cast<size_t>(vocabulary.size()));
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      std::string bytes;
      // Of two ids with one text the vocabulary knows one.
      if (AppendBytesOf(vocabulary.Text(id), &bytes) && !bytes.empty() &&
          vocabulary.Find(vocabulary.Text(id)) == id) {
        words_.emplace(std::move(bytes), id);
      }
    }
  }

  void Encode(absl::string_view word, std::vector<int32_t>* ids) const override {
    if (const auto it = words_.find(word); it != words_.end()) {
      ids->push_back(it->second);
      return;
    }
    std::vector<Symbol> symbols(word.size());
    for (size_t i = 0; i < word.size(); ++i) {
      symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], static_cast<uint32_t>(i), 1};
    }
    Merger<MergeTable>(merges_).Run(&symbols);
    for (const Symbol& symbol : symbols) ids->push_back(symbol.id);
  }

 private:
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_;
  absl::flat_hash_map<std::string, int32_t> words_;  // for ignore_merges
};

}  // namespace

bool HasByteAlphabet(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.Find(CharText(static_cast<uint8_t>(byte))) == kNoToken) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Model>> MakeBpe(const plan::TokenizerT& spec,
                                               const Vocabulary& vocabulary, bool raw_bytes) {
  if (spec.merges.size() % 3 != 0 || spec.merges.size() / 3 >= UINT32_MAX) {
    return absl::InvalidArgumentError("bpe: merges are not triples of ids");
  }
  MergeTable merges;
  merges.Reserve(spec.merges.size() / 3);
  const auto size = static_cast<uint32_t>(vocabulary.size());
  for (size_t i = 0; i < spec.merges.size(); i += 3) {
    const uint32_t left = spec.merges[i], right = spec.merges[i + 1], merged = spec.merges[i + 2];
    if (left >= size || right >= size || merged >= size) {
      return absl::InvalidArgumentError(
          absl::StrCat("bpe: merge ", i / 3, " has an id outside the vocabulary"));
    }
    merges.Add(left, right, {static_cast<uint32_t>(i / 3), static_cast<int32_t>(merged)});
  }
  if (raw_bytes) return std::make_unique<RawBytesBpe>(spec, vocabulary, std::move(merges));
  return std::make_unique<Bpe>(spec, vocabulary, std::move(merges));
}

}  // namespace quire::tokenizer

#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/piece.h"
#include "runtime/tokenizer/tokenizer_impl.h"
#include "runtime/tokenizer/unicode.h"

namespace quire {
namespace {

using tokenizer::Piece;
using tokenizer::TextArena;

absl::Status CheckId(const char* field, int64_t id, int32_t vocab_size) {
  if (id < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tokenizer: ", field, "=", id, " is not below the vocabulary's size ", vocab_size));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::Create(const plan::TokenizerT& data) {
  std::vector<std::unique_ptr<tokenizer::Normalizer>> normalizers;
  for (const auto& spec : data.normalizers) {
    const std::string field = absl::StrCat("normalizers[", normalizers.size(), "]");
    if (spec == nullptr) return absl::InvalidArgumentError(absl::StrCat(field, ": missing"));
    auto normalizer = tokenizer::MakeNormalizer(*spec);
    if (!normalizer.ok()) return WithPrefix(normalizer.status(), field);
    normalizers.push_back(*std::move(normalizer));
  }
  QUIRE_ASSIGN_OR_RETURN(auto vocabulary, tokenizer::Vocabulary::Create(data));
  QUIRE_ASSIGN_OR_RETURN(auto added, tokenizer::AddedTokens::Create(data, normalizers));
  auto impl = std::make_unique<Impl>(std::move(vocabulary), std::move(added));
  impl->normalizers = std::move(normalizers);

  // Where the last step turns bytes into characters and the model has every one of them, both work
  // on bytes.
  const bool raw_bytes = data.model == plan::TokenizerModel::kBpe && !data.pre_tokenizers.empty() &&
                         data.pre_tokenizers.back() != nullptr &&
                         data.pre_tokenizers.back()->kind == plan::PreTokenizerKind::kByteLevel &&
                         tokenizer::HasByteAlphabet(impl->vocabulary);
  for (const auto& spec : data.pre_tokenizers) {
    const size_t index = impl->pre_tokenizers.size();
    const std::string field = absl::StrCat("pre_tokenizers[", index, "]");
    if (spec == nullptr) return absl::InvalidArgumentError(absl::StrCat(field, ": missing"));
    if (raw_bytes && index + 1 == data.pre_tokenizers.size()) {
      impl->pre_tokenizers.push_back(tokenizer::MakeRawByteLevel(*spec));
      break;
    }
    auto step = tokenizer::MakePreTokenizer(*spec);
    if (!step.ok()) return WithPrefix(step.status(), field);
    impl->pre_tokenizers.push_back(*std::move(step));
  }
  QUIRE_ASSIGN_OR_RETURN(impl->model, tokenizer::MakeModel(data, impl->vocabulary, raw_bytes));

  QUIRE_RETURN_IF_ERROR(tokenizer::CheckDecoders(data.decoders));
  for (const auto& spec : data.decoders) {
    impl->decoders.push_back(std::make_unique<plan::TokenDecoderT>(*spec));
  }
  const int32_t size = std::max(impl->vocabulary.size(), impl->added.max_id() + 1);
  for (const uint32_t id : data.prefix_ids) {
    QUIRE_RETURN_IF_ERROR(CheckId("prefix id", id, size));
    impl->prefix_ids.push_back(static_cast<int32_t>(id));
  }
  for (const uint32_t id : data.suffix_ids) {
    QUIRE_RETURN_IF_ERROR(CheckId("suffix id", id, size));
    impl->suffix_ids.push_back(static_cast<int32_t>(id));
  }
  QUIRE_RETURN_IF_ERROR(CheckId("bos_id", data.bos_id, size));
  QUIRE_RETURN_IF_ERROR(CheckId("eos_id", data.eos_id, size));
  QUIRE_RETURN_IF_ERROR(CheckId("pad_id", data.pad_id, size));
  impl->bos_id = std::max(data.bos_id, -1);
  impl->eos_id = std::max(data.eos_id, -1);
  impl->pad_id = std::max(data.pad_id, -1);
  impl->chat_template = data.chat_template;
  return Tokenizer(std::move(impl));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       EncodeOptions options) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::ResourceExhaustedError("tokenizer: the text has more than 2^31 - 1 bytes");
  }
  TextArena arena;
  if (tokenizer::ValidUtf8Prefix(text) != text.size())
    text = arena.Add(tokenizer::ReplaceInvalidUtf8(text));

  std::vector<Piece> pieces, next;
  impl_->added.SplitRaw({text, -1, true}, options.parse_special, &pieces);
  // Replaces each piece of text by what `split` makes of it.
  const auto for_each_text = [&](auto split) -> absl::Status {
    next.clear();
    for (const Piece& piece : pieces) {
      if (piece.id >= 0) {
        next.push_back(piece);
      } else if (!piece.text.empty()) {
        QUIRE_RETURN_IF_ERROR(split(piece));
      }
    }
    pieces.swap(next);
    return absl::OkStatus();
  };
  if (!impl_->normalizers.empty() || impl_->added.has_normalized()) {
    const auto normalize = [&](const Piece& piece) -> absl::Status {
      std::string normalized(piece.text);
      Piece out = piece;
      for (const auto& normalizer : impl_->normalizers) {
        QUIRE_RETURN_IF_ERROR(normalizer->Apply(&normalized, &out.at_start));
      }
      out.text = arena.Add(std::move(normalized));
      impl_->added.SplitNormalized(out, options.parse_special, &next);
      return absl::OkStatus();
    };
    QUIRE_RETURN_IF_ERROR(for_each_text(normalize));
  }
  for (const auto& step : impl_->pre_tokenizers) {
    QUIRE_RETURN_IF_ERROR(
        for_each_text([&](const Piece& piece) { return step->Split(piece, &arena, &next); }));
  }

  std::vector<int32_t> ids;
  ids.reserve(pieces.size() + impl_->prefix_ids.size() + impl_->suffix_ids.size());
  if (options.add_special) ids = impl_->prefix_ids;
  const std::unique_lock<std::mutex> cache_lock(impl_->cache_mutex, std::try_to_lock);
  for (const Piece& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else if (!piece.text.empty() && !(cache_lock && impl_->cache.Find(piece.text, &ids))) {
      const size_t first = ids.size();
      impl_->model->Encode(piece.text, &ids);
      if (cache_lock && ids.size() > first) {
        impl_->cache.Add(piece.text, ids.data() + first, ids.size() - first);
      }
    }
  }
  if (options.add_special)
    ids.insert(ids.end(), impl_->suffix_ids.begin(), impl_->suffix_ids.end());
  return ids;
}

int32_t Tokenizer::vocab_size() const {
  return std::max(impl_->vocabulary.size(), impl_->added.max_id() + 1);
}

absl::string_view Tokenizer::TokenText(int32_t id) const {
  if (const absl::string_view content = impl_->added.Content(id); !content.empty()) return content;
  if (id < 0 || id >= impl_->vocabulary.size()) return absl::string_view();
  return impl_->vocabulary.Text(id);
}

int32_t Tokenizer::TokenId(absl::string_view text) const {
  const int32_t id = impl_->added.Find(text);
  return id >= 0 ? id : impl_->vocabulary.Find(text);
}

bool Tokenizer::IsSpecial(int32_t id) const { return impl_->added.IsSpecial(TokenText(id)); }
int32_t Tokenizer::bos_id() const { return impl_->bos_id; }
int32_t Tokenizer::eos_id() const { return impl_->eos_id; }
int32_t Tokenizer::pad_id() const { return impl_->pad_id; }
absl::string_view Tokenizer::chat_template() const { return impl_->chat_template; }

struct StreamDecoder::State {
  State(const Tokenizer& t, const std::vector<std::unique_ptr<plan::TokenDecoderT>>& decoders,
        bool skip)
      : tokenizer(&t), skip_special(skip), chain(decoders, &ready) {}

  const Tokenizer* tokenizer;
  bool skip_special;
  std::string ready;  // text that is final and not yet returned
  tokenizer::DecodeChain chain;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(std::make_unique<State>(tokenizer, tokenizer.impl_->decoders, skip_special)) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::Push(int32_t id) {
  const absl::string_view text = state_->tokenizer->TokenText(id);
  if (text.empty() || (state_->skip_special && state_->tokenizer->IsSpecial(id)))
    return std::string();
  state_->chain.Push(text);
  return std::exchange(state_->ready, std::string());
}

std::string StreamDecoder::Finish() {
  state_->chain.Finish();
  return std::exchange(state_->ready, std::string());
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text += decoder.Finish();
}

}  // namespace quire

// Status macros and the error form that every message of Quire follows.
//
//   layers.7.self_attn: head_dim=100 is not a multiple of 8
//     from: config.json hidden_size=4100, num_attention_heads=41
//     allowed: a multiple of 8, 8..512
//
// The first line names the place, the key and the value; `from` says where the value was read;
// `allowed` gives the allowed set, and `fix` the nearest thing to do. Codes keep the meaning of the
// table in README.md.
#ifndef QUIRE_IR_STATUS_H_
#define QUIRE_IR_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {

// `status` with "  <label>: <text>" as a further line, a `fix` being the last. OK stays OK.
absl::Status WithLine(const absl::Status& status, absl::string_view label, absl::string_view text);

// Returns `status` with `prefix` and ": " before its message. OK stays OK.
absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix);

// The nearest of `candidates` to `word` by edit distance, or "" if none is near; for "did you mean"
// lines.
template <typename Container>
std::string Nearest(absl::string_view word, const Container& candidates);

// Edit distance (Levenshtein) of two short words.
int EditDistance(absl::string_view a, absl::string_view b);

template <typename Container>
std::string Nearest(absl::string_view word, const Container& candidates) {
  std::string best;
  int best_distance = static_cast<int>(word.size()) / 3 + 2;
  for (const auto& candidate : candidates) {
    const int distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(absl::string_view(candidate));
    }
  }
  return best;
}

}  // namespace quire

#define QUIRE_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::absl::Status quire_status_ = (expr);         \
    if (!quire_status_.ok()) return quire_status_; \
  } while (false)

#define QUIRE_CONCAT_INNER_(a, b) a##b
#define QUIRE_CONCAT_(a, b) QUIRE_CONCAT_INNER_(a, b)

// QUIRE_ASSIGN_OR_RETURN(auto x, F()): returns F()'s error, or binds its value.
#define QUIRE_ASSIGN_OR_RETURN(lhs, expr) \
  QUIRE_ASSIGN_OR_RETURN_IMPL_(QUIRE_CONCAT_(quire_status_or_, __LINE__), lhs, expr)
#define QUIRE_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                                 \
  if (!var.ok()) return var.status();                \
  lhs = std::move(var).value()

#endif  // QUIRE_IR_STATUS_H_

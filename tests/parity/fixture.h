// The committed fixtures of make_fixtures.py and make_gguf_fixtures.py: a small checkpoint and what
// transformers computes with it.
#ifndef QUIRE_TESTS_PARITY_FIXTURE_H_
#define QUIRE_TESTS_PARITY_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/import/checkpoint.h"

namespace quire::testing {

struct Fixture {
  std::vector<int32_t> ids;     // the prompt, then one for each decode step
  std::vector<int32_t> source;  // of an encoder-decoder; otherwise empty
  std::vector<float> states;    // [rows, states_width], of a model that looks at states
  int64_t states_width = 0;
  // Where these are of images: their positions, rows each, and logits as below.
  std::vector<int32_t> image_positions, image_rows;
  std::vector<float> image_logits;
  // Of an encoder-decoder: best sequences of beam searches, with their scores (make_fixtures.py).
  std::vector<std::vector<int32_t>> beams;
  std::vector<float> scores;
  int64_t prompt_tokens = 0;
  int64_t vocab_size = 0;
  std::vector<float> logits;  // [ids, V]: the prompt's rows, then one of each step

  const float* row(size_t i) const { return logits.data() + i * static_cast<size_t>(vocab_size); }
};

// Folders under tests/parity/fixtures, sorted.
std::vector<std::string> FixtureNames();
// The model: the folder, or the .gguf file in it.
std::string FixturePath(absl::string_view name);
absl::StatusOr<Fixture> ReadFixture(absl::string_view name);

}  // namespace quire::testing

#endif  // QUIRE_TESTS_PARITY_FIXTURE_H_

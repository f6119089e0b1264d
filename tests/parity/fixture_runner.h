// Parity fixtures compiled, loaded on a device and run step by step, for the tests of each device.
#ifndef QUIRE_TESTS_PARITY_FIXTURE_RUNNER_H_
#define QUIRE_TESTS_PARITY_FIXTURE_RUNNER_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/weights.h"
#include "tests/parity/fixture.h"
#include "tools/assemble_plan.h"

namespace quire::testing {

// A program that was loaded from a plan file, with what must outlive it.
struct Loaded {
  std::shared_ptr<const PlanFile> plan;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  std::unique_ptr<Program> encoder;  // of an encoder-decoder
  const plan::TargetT* target = nullptr;
};

class PlanPath {
 public:
  PlanPath() {
    char name[] = "/tmp/quire_parity_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~PlanPath() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/model.qplan"; }

 private:
  std::string folder_;
};

// On device `target`, which `options` are for; kernels come from no cache unless they say where.
inline absl::StatusOr<Loaded> LoadFixture(const std::string& fixture, const TargetRequest& target,
                                          DeviceOptions device_options) {
  const PlanPath file;
  AssembleOptions options;
  options.model = FixturePath(fixture);
  options.plan_path = file.path();
  options.targets = {target};
  QUIRE_ASSIGN_OR_RETURN(AssembledPlan assembled, AssemblePlan(options));
  QUIRE_RETURN_IF_ERROR(WritePlan(*assembled.plan, file.path()));
  QUIRE_ASSIGN_OR_RETURN(PlanFile opened, OpenPlan(file.path()));
  Loaded loaded;
  loaded.plan = std::make_shared<const PlanFile>(std::move(opened));
  if (device_options.kernel_cache_dir.empty()) device_options.kernel_cache_dir = "none";
  QUIRE_ASSIGN_OR_RETURN(loaded.device, CreateDevice(target.name, device_options));
  QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* lowered, loaded.plan->Target(target.name));
  loaded.target = lowered;
  QUIRE_ASSIGN_OR_RETURN(loaded.program,
                         loaded.device->Load(*lowered, "step", *OpenWeights(loaded.plan)));
  if (lowered->programs.size() > 1) {
    QUIRE_ASSIGN_OR_RETURN(loaded.encoder,
                           loaded.device->Load(*lowered, "encode", *OpenWeights(loaded.plan)));
  }
  return loaded;
}

// Block tables of sequences with so many tokens, dealt from the end of the pool, so that a wrong
// page shows.
inline std::vector<std::vector<int32_t>> Tables(const std::vector<int32_t>& tokens,
                                                int32_t page_tokens, int32_t* pages) {
  std::vector<std::vector<int32_t>> tables;
  *pages = 0;
  for (const int32_t count : tokens) {
    tables.emplace_back(static_cast<size_t>((count + page_tokens - 1) / page_tokens));
    *pages += static_cast<int32_t>(tables.back().size());
  }
  int32_t next = *pages;
  for (auto& table : tables) {
    for (int32_t& page : table) page = --next;
  }
  return tables;
}

// What the encoder leaves for `copies` sequences: the last has the fixture's source or states, the
// others its beginnings, so that lengths differ.
struct Encoded {
  std::unique_ptr<PagePool> pool;
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> tables;
};

inline absl::StatusOr<Encoded> Encode(const Loaded& loaded, const Fixture& fixture, int copies) {
  Encoded encoded;
  if (loaded.encoder == nullptr) return encoded;
  const int64_t width = loaded.encoder->states_width();
  const auto whole =
      static_cast<int32_t>(width > 0 ? static_cast<int64_t>(fixture.states.size()) / width
                                     : static_cast<int64_t>(fixture.source.size()));
  // Of states there may be none.
  for (int i = copies - 1; i >= 0; --i) {
    encoded.tokens.push_back(std::max(whole - 6 * i, width > 0 ? 0 : 1));
  }
  int32_t pages = 0;
  encoded.tables = Tables(encoded.tokens, loaded.target->page_tokens, &pages);
  QUIRE_ASSIGN_OR_RETURN(encoded.pool, loaded.encoder->CreatePool(std::max(pages, 1)));
  std::vector<int32_t> ids, positions;
  std::vector<SequenceRows> sequences;
  std::vector<absl::Span<const float>> states;
  for (size_t i = 0; i < encoded.tables.size(); ++i) {
    const int32_t count = encoded.tokens[i];
    if (count == 0) continue;
    sequences.push_back({static_cast<int32_t>(ids.size()), count, count, encoded.tables[i]});
    if (width > 0) {
      ids.resize(ids.size() + static_cast<size_t>(count));
      states.push_back(
          absl::MakeConstSpan(fixture.states).first(static_cast<size_t>(count * width)));
    } else {
      ids.insert(ids.end(), fixture.source.begin(), fixture.source.begin() + count);
    }
    for (int32_t position = 0; position < count; ++position) positions.push_back(position);
  }
  if (ids.empty()) return encoded;
  Step step = {ids, positions, {}, sequences};
  step.states = states;
  QUIRE_RETURN_IF_ERROR(loaded.encoder->Run(step, *encoded.pool, {}));
  return encoded;
}

// Runs the fixture's ids as `copies` sequences side by side, cut into the given chunks, and returns
// the logits of every row of the last copy.
inline absl::StatusOr<std::vector<float>> RunIds(const Loaded& loaded, const Fixture& fixture,
                                                 const std::vector<int32_t>& chunks, int copies) {
  const std::vector<int32_t> totals(static_cast<size_t>(copies),
                                    static_cast<int32_t>(fixture.ids.size()));
  int32_t pages = 0;
  const std::vector<std::vector<int32_t>> tables =
      Tables(totals, loaded.target->page_tokens, &pages);
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool, loaded.program->CreatePool(pages));
  QUIRE_ASSIGN_OR_RETURN(const Encoded encoded, Encode(loaded, fixture, copies));
  const auto vocabulary = static_cast<size_t>(fixture.vocab_size);
  std::vector<float> logits(fixture.ids.size() * vocabulary);
  int32_t done = 0;
  for (int32_t rows : chunks) {
    std::vector<int32_t> ids, positions, logit_rows(static_cast<size_t>(rows));
    std::vector<SequenceRows> sequences;
    for (const auto& table : tables) {
      sequences.push_back({static_cast<int32_t>(ids.size()), rows, done + rows, table});
      if (encoded.pool != nullptr) {
        sequences.back().encoder_tokens = encoded.tokens[sequences.size() - 1];
        sequences.back().encoder_pages = encoded.tables[sequences.size() - 1];
      }
      for (int32_t i = done; i < done + rows; ++i) {
        ids.push_back(fixture.ids[static_cast<size_t>(i)]);
        positions.push_back(i);
      }
    }
    std::iota(logit_rows.begin(), logit_rows.end(), sequences.back().first_row);
    QUIRE_RETURN_IF_ERROR(loaded.program->Run(
        {ids, positions, logit_rows, sequences, encoded.pool.get()}, *pool,
        absl::MakeSpan(logits).subspan(static_cast<size_t>(done) * vocabulary,
                                       static_cast<size_t>(rows) * vocabulary)));
    done += rows;
  }
  return logits;
}

inline std::vector<int32_t> PromptThenTokens(const Fixture& fixture) {
  std::vector<int32_t> chunks = {static_cast<int32_t>(fixture.prompt_tokens)};
  chunks.resize(1 + fixture.ids.size() - static_cast<size_t>(fixture.prompt_tokens), 1);
  return chunks;
}

inline std::vector<int32_t> ChunksOf(const Fixture& fixture, int32_t rows) {
  std::vector<int32_t> chunks;
  for (auto left = static_cast<int32_t>(fixture.ids.size()); left > 0; left -= rows) {
    chunks.push_back(std::min(rows, left));
  }
  return chunks;
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_PARITY_FIXTURE_RUNNER_H_

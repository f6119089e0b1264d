#include "codegen/cuda/kernel_builder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/cuda/source.h"
#include "ir/status.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

std::string HashText(absl::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

// The kernel headers that `text` includes, and those that they include, by name.
void AddIncluded(absl::string_view text, std::vector<std::string>* names) {
  constexpr absl::string_view kInclude = "#include \"";
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, kInclude)) continue;
    const absl::string_view name = line.substr(0, line.find('"'));
    if (std::find(names->begin(), names->end(), name) != names->end()) continue;
    for (const auto& [header, header_text] : CudaKernelHeaders()) {
      if (header != name) continue;
      names->push_back(header);
      AddIncluded(header_text, names);
    }
  }
}

// Their texts.
std::string TextsOfIncluded(absl::string_view source) {
  std::vector<std::string> names;
  AddIncluded(source, &names);
  std::string texts;
  for (const auto& [name, text] : CudaKernelHeaders()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      absl::StrAppend(&texts, name, "\n", text, "\n");
    }
  }
  return texts;
}

// A source begins with a comment that says what it computes.
absl::string_view SpecOf(const CudaEntry& entry) {
  absl::string_view line = absl::string_view(entry.source).substr(0, entry.source.find('\n'));
  absl::ConsumePrefix(&line, "// ");
  return line;
}
// What is behind it. Specs that differ may have equal code: rows of as many bytes, say.
absl::string_view CodeOf(const CudaEntry& entry) {
  absl::string_view code = entry.source;
  while (absl::StartsWith(code, "//"))
    code.remove_prefix(std::min(code.find('\n'), code.size() - 1) + 1);
  return code;
}

// An entry of the cache: bytes of the log as u64, log, cubin.
std::string Encode(const BuiltEntry& built) {
  const uint64_t log_bytes = built.log.size();
  return absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(&log_bytes), sizeof(log_bytes)), built.log,
      built.cubin);
}

std::optional<BuiltEntry> Decode(absl::string_view bytes) {
  uint64_t log_bytes = 0;
  if (bytes.size() < sizeof(log_bytes)) return std::nullopt;
  std::memcpy(&log_bytes, bytes.data(), sizeof(log_bytes));
  bytes.remove_prefix(sizeof(log_bytes));
  if (log_bytes > bytes.size()) return std::nullopt;
  return BuiltEntry{std::string(bytes.substr(log_bytes)), std::string(bytes.substr(0, log_bytes))};
}

// `included`: the texts of the headers that the source includes.
std::string KeyOf(const CudaEntry& entry, absl::string_view included,
                  absl::string_view architecture) {
  return absl::StrCat("cuda ", architecture, " ", absl::StrJoin(Nvrtc::Options(), " "), "\n",
                      "headers ", HashText(included), "\n", CodeOf(entry));
}

std::string VersionedKey(absl::string_view key, absl::string_view version) {
  return absl::StrCat("nvrtc ", version, "\n", key);
}

constexpr absl::string_view kVersionsKey = "cuda: versions of nvrtc, the last first";

}  // namespace

std::string CudaBinaryKey(const CudaEntry& entry, absl::string_view architecture) {
  return KeyOf(entry, TextsOfIncluded(entry.source), architecture);
}

std::string CudaBinaryName(absl::string_view key) { return HashText(key); }

// One text to be built, for every entry that has it.
struct CudaKernelBuilder::Job {
  const CudaEntry* entry = nullptr;
  std::string key;
  size_t included_bytes = 0;
  std::optional<Origin> from;  // null: from nowhere, and `status` says why
  bool late = false;
  absl::Status status;
  BuiltEntry built;
};

void CudaKernelBuilder::AddPlanBinary(absl::string_view name, absl::Span<const uint8_t> cubin) {
  plan_.emplace(name, cubin);
}

CudaKernelBuilder::Counters CudaKernelBuilder::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

std::optional<BuiltEntry> CudaKernelBuilder::FindInCache(absl::string_view key,
                                                         absl::string_view version) const {
  const std::optional<std::string> found = cache_.Find(VersionedKey(key, version));
  return found.has_value() ? Decode(*found) : std::nullopt;
}

std::vector<std::string> CudaKernelBuilder::CachedVersions() const {
  return absl::StrSplit(cache_.Find(kVersionsKey).value_or(""), ' ', absl::SkipEmpty());
}

// Two processes with different versions may overwrite each other's list; a version that is missing
// comes back at the next use of its entries.
void CudaKernelBuilder::RememberVersion(const std::string& version, bool has_compiled) const {
  std::vector<std::string> versions = CachedVersions();
  const auto found = std::find(versions.begin(), versions.end(), version);
  if (found != versions.end()) {
    if (!has_compiled || found == versions.begin()) return;
    versions.erase(found);
  }
  versions.insert(versions.begin(), version);
  cache_.Publish(kVersionsKey, absl::StrJoin(versions, " ")).IgnoreError();
}

std::optional<BuiltEntry> CudaKernelBuilder::FindAny(absl::string_view key) const {
  for (const std::string& version : CachedVersions()) {
    if (std::optional<BuiltEntry> found = FindInCache(key, version)) return found;
  }
  return std::nullopt;
}

absl::StatusOr<const Nvrtc*> CudaKernelBuilder::Compiler() const {
  if (options_.jit == JitPolicy::kNever) {
    return absl::FailedPreconditionError("cuda: --jit=never, and");
  }
  return Nvrtc::Get();
}

CudaKernelBuilder::Found CudaKernelBuilder::Find(const std::string& key) const {
  if (const auto found = plan_.find(CudaBinaryName(key)); found != plan_.end()) {
    const auto* bytes = reinterpret_cast<const char*>(found->second.data());
    return {Origin::kPlan, {std::string(bytes, found->second.size()), ""}};
  }
  const absl::StatusOr<const Nvrtc*> nvrtc = Compiler();
  std::optional<BuiltEntry> cached =
      nvrtc.ok() ? FindInCache(key, (*nvrtc)->version()) : FindAny(key);
  if (!cached.has_value()) return {};
  return {Origin::kCache, *std::move(cached)};
}

void CudaKernelBuilder::Run(Job& job) {
  Found found = Find(job.key);
  if (found.origin != Origin::kCompiler) {
    job.built = std::move(found.built);
    job.from = found.origin;
    return;
  }
  const absl::StatusOr<const Nvrtc*> nvrtc = Compiler();
  job.late = sealed_;
  job.status = job.late ? absl::InternalError("cuda: everything is loaded, but") : nvrtc.status();
  if (!job.status.ok()) return;
  absl::StatusOr<CudaBinary> binary = (*nvrtc)->Compile(job.entry->entry + ".cu", job.entry->source,
                                                        options_.architecture, CudaKernelHeaders());
  job.status = binary.status();
  if (!binary.ok()) return;
  job.from = Origin::kCompiler;
  job.built = {std::move(binary->cubin), std::move(binary->log)};
  cache_.Publish(VersionedKey(job.key, (*nvrtc)->version()), Encode(job.built)).IgnoreError();
}

absl::Status CudaKernelBuilder::FirstError(absl::Span<const Job> jobs) const {
  const Job* first = nullptr;
  int failed = 0;
  for (const Job& job : jobs) {
    if (job.status.ok()) continue;
    if (failed++ == 0) first = &job;
  }
  if (first == nullptr) return absl::OkStatus();
  // A text that does not compile has its own message.
  if (absl::IsInternal(first->status) && !first->late) return first->status;
  const std::string which =
      absl::StrCat(" ", failed, " of ", jobs.size(), " kernels would have to be compiled for ",
                   options_.architecture, ", the first for ", SpecOf(*first->entry));
  absl::Status status =
      absl::IsUnavailable(first->status)
          ? WithLine(first->status, "needed", which.substr(1))
          : absl::Status(first->status.code(), absl::StrCat(first->status.message(), which));
  if (first->late) return status;
  return WithLine(status, "fix",
                  absl::StrCat("quire compile --target=cuda:", options_.architecture,
                               " where NVRTC is puts the kernels into the plan",
                               options_.jit == JitPolicy::kNever ? "; or --jit=auto" : ""));
}

absl::StatusOr<std::vector<BuiltEntry>> CudaKernelBuilder::Build(
    absl::Span<const CudaEntry* const> entries) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Job> jobs;
  std::vector<size_t> job_of;
  absl::flat_hash_map<std::string, size_t> by_key;
  for (const CudaEntry* entry : entries) {
    const std::string included = TextsOfIncluded(entry->source);
    std::string key = KeyOf(*entry, included, options_.architecture);
    const auto [place, is_new] = by_key.emplace(key, jobs.size());
    job_of.push_back(place->second);
    if (!is_new) continue;
    jobs.emplace_back();
    jobs.back().entry = entry;
    jobs.back().key = std::move(key);
    jobs.back().included_bytes = included.size();
  }
  std::atomic<size_t> next{0};
  // Long texts first, which take long: what is left for one thread at the end is short.
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < jobs.size(); ++i) order.emplace_back(jobs[i].included_bytes, i);
  std::sort(order.rbegin(), order.rend());
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) Run(jobs[order[i].second]);
  };
  const size_t wanted = options_.threads > 0 ? static_cast<size_t>(options_.threads)
                                             : std::thread::hardware_concurrency();
  std::vector<std::thread> threads;
  while (threads.size() + 1 < std::min(wanted, jobs.size())) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();

  bool has_compiled = false, has_cached = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Job& job : jobs) {
      counters_.in_plan += job.from == Origin::kPlan ? 1 : 0;
      counters_.in_cache += job.from == Origin::kCache ? 1 : 0;
      counters_.compiled += job.from == Origin::kCompiler ? 1 : 0;
      counters_.missing += !job.from.has_value() ? 1 : 0;
      counters_.late += job.late ? 1 : 0;
      has_cached |= job.from == Origin::kCache;
      has_compiled |= job.from == Origin::kCompiler;
    }
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    counters_.ms += taken.count();
  }
  if (has_compiled || (has_cached && options_.jit != JitPolicy::kNever)) {
    const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
    if (nvrtc.ok()) RememberVersion((*nvrtc)->version(), has_compiled);
  }
  QUIRE_RETURN_IF_ERROR(FirstError(jobs));
  std::vector<BuiltEntry> built;
  for (size_t job : job_of) built.push_back(jobs[job].built);
  return built;
}

}  // namespace quire

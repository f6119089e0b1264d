// tokenizer_cli encode|decode|bench FILE [--no-parse]: the tokenizer on lines, for comparison by
// script.
//
// encode: each line of stdin is text in hexadecimal; prints its ids. decode: each line is ids;
// prints the text in hexadecimal, and "!" before it if a StreamDecoder says otherwise. bench:
// encodes stdin whole and line by line.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"
#include "models/import/checkpoint.h"
#include "models/import/tokenizer_checkpoint.h"
#include "models/import/tokenizer_json.h"
#include "runtime/tokenizer/tokenizer.h"

namespace {

using quire::EncodeOptions;
using quire::Tokenizer;

int Fail(const absl::Status& status) {
  std::cerr << status << "\n";
  return 3;
}

std::string ReadAll(std::istream& in) {
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// A tokenizer.json, or a checkpoint.
absl::StatusOr<quire::plan::TokenizerT> Import(absl::string_view path) {
  if (absl::EndsWith(path, ".json")) {
    std::ifstream file{std::string(path), std::ios::binary};
    return quire::ImportTokenizerJson({ReadAll(file), "", "", ""});
  }
  QUIRE_ASSIGN_OR_RETURN(const quire::Checkpoint checkpoint, quire::OpenCheckpoint(path));
  QUIRE_ASSIGN_OR_RETURN(auto tokenizer, quire::ImportTokenizer(checkpoint));
  if (tokenizer == nullptr) return absl::NotFoundError("no tokenizer");
  return *std::move(tokenizer);
}

int Encode(const Tokenizer& tokenizer, EncodeOptions options) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto ids = tokenizer.Encode(absl::HexStringToBytes(line), options);
    if (!ids.ok()) return Fail(ids.status());
    std::cout << absl::StrJoin(*ids, " ") << "\n";
  }
  return 0;
}

int Decode(const Tokenizer& tokenizer) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<int32_t> ids;
    std::istringstream in(line);
    for (int32_t id; in >> id;) ids.push_back(id);
    const std::string text = tokenizer.Decode(ids);
    std::string streamed;
    quire::StreamDecoder decoder(tokenizer);
    for (const int32_t id : ids) streamed += decoder.Push(id);
    streamed += decoder.Finish();
    std::cout << (streamed == text ? "" : "!") << absl::BytesToHexString(text) << "\n";
  }
  return 0;
}

int Bench(const Tokenizer& tokenizer) {
  const std::string text = ReadAll(std::cin);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (int round = 0; round < 3; ++round) {
    size_t tokens = 0;
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& line : lines) tokens += tokenizer.Encode(line)->size();
    const auto middle = std::chrono::steady_clock::now();
    tokens += tokenizer.Encode(text)->size();
    const auto end = std::chrono::steady_clock::now();
    const auto rate = [&](auto a, auto b) {
      return static_cast<double>(text.size()) / 1e6 / std::chrono::duration<double>(b - a).count();
    };
    std::printf("lines %.1f MB/s, whole %.1f MB/s, %zu tokens\n", rate(start, middle),
                rate(middle, end), tokens);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr
        << "usage: tokenizer_cli encode|decode|bench tokenizer.json|CHECKPOINT [--no-parse]\n";
    return 2;
  }
  EncodeOptions options;
  for (int i = 3; i < argc; ++i) {
    if (absl::string_view(argv[i]) == "--no-parse") options.parse_special = false;
  }
  const auto data = Import(argv[2]);
  if (!data.ok()) return Fail(data.status());
  const auto tokenizer = Tokenizer::Create(*data);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  const std::string verb = argv[1];
  if (verb == "encode") return Encode(*tokenizer, options);
  if (verb == "decode") return Decode(*tokenizer);
  return Bench(*tokenizer);
}

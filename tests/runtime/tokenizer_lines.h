// Lines of mixed scripts, code, white space and broken UTF-8, the same as
// tokenizer/tokenizer_lines.py makes.
#ifndef QUIRE_TESTS_RUNTIME_TOKENIZER_LINES_H_
#define QUIRE_TESTS_RUNTIME_TOKENIZER_LINES_H_

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/tokenizer/unicode.h"
#include "tests/testdata.h"

namespace quire {

class TestLines {
 public:
  explicit TestLines(uint64_t seed) : state_(seed) {
    std::ifstream file(TestData("runtime/tokenizer/atoms.txt"), std::ios::binary);
    for (std::string line; std::getline(file, line);) {
      if (line.compare(0, 5, "text ") == 0) atoms_.push_back({Unescape(line.substr(5)), 0, 0});
      if (line.compare(0, 6, "range ") == 0) {
        Atom atom;
        std::istringstream(line.substr(6)) >> atom.first >> atom.last;
        atoms_.push_back(atom);
      }
    }
  }

  uint64_t Draw(uint64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % n;
  }

  std::string Line() {
    std::string out;
    for (uint64_t atoms = 1 + Draw(24); atoms > 0; --atoms) {
      const Atom& atom = atoms_[Draw(atoms_.size())];
      if (atom.last == 0) {
        out += atom.text;
      } else {
        tokenizer::AppendUtf8(static_cast<char32_t>(atom.first + Draw(atom.last - atom.first + 1)),
                              &out);
      }
    }
    return out;
  }

 private:
  struct Atom {
    std::string text;
    uint64_t first = 0;
    uint64_t last = 0;  // 0: text
  };

  static std::string Unescape(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
      } else if (text[++i] == 'x') {
        out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        out += text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i] == 't' ? '\t' : text[i];
      }
    }
    return out;
  }

  uint64_t state_;
  std::vector<Atom> atoms_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_RUNTIME_TOKENIZER_LINES_H_

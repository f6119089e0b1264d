// One live line on a terminal that says what is being done; nothing when stderr is not a terminal.
#ifndef QUIRE_TOOLS_PROGRESS_H_
#define QUIRE_TOOLS_PROGRESS_H_

#include <string>

namespace quire {

class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(const std::string& text);
  void Clear();

 private:
  const bool on_;
  bool shown_ = false;
};

}  // namespace quire

#endif  // QUIRE_TOOLS_PROGRESS_H_

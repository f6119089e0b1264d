#include "tools/progress.h"

#include <unistd.h>

#include <cstdio>

namespace quire {

Progress::Progress() : on_(isatty(STDERR_FILENO) != 0) {}

void Progress::Show(const std::string& text) {
  if (!on_) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::Clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace quire

// Queries the terminal size with TIOCGWINSZ.
#include "fleet/launcher/terminal_size.h"

#include <sys/ioctl.h>

namespace troop {

TerminalSize SizeOfTerminal(int fd) {
  TerminalSize size;
  struct winsize window {};
  if (ioctl(fd, TIOCGWINSZ, &window) != 0) return size;
  // Some terminals report 0: keep the defaults then.
  if (window.ws_col > 0) size.columns = window.ws_col;
  if (window.ws_row > 0) size.rows = window.ws_row;
  return size;
}

}  // namespace troop

#pragma once

namespace troop {

// The size of a terminal in characters.
struct TerminalSize {
  int columns = 80, rows = 24;  // defaults if the size is unknown
};
// Current size of the terminal at `fd`. It may change at any time. Defaults if `fd` is not a
// terminal.
TerminalSize SizeOfTerminal(int fd);

}  // namespace troop

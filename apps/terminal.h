#pragma once

namespace troop {

struct TerminalSize {
  int columns = 80, rows = 24;  // where the size is unknown: no terminal, or one that hides it
};
// Of the terminal behind `fd` at this moment; people resize windows.
TerminalSize SizeOfTerminal(int fd);

}  // namespace troop

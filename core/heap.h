#pragma once

namespace troop {

// Tells the C library to keep what is freed for what is taken next. Who takes and frees the same
// hundred MB with each gradient would else get new pages each time, which the kernel clears: of a
// push and pull of 100 MB that was the longer half. What it costs: memory does not shrink below
// 1 GiB of what was in use at a time. One heap for all threads: for processes of few threads that
// allocate. Call it before any thread starts. Does nothing under the sanitizers.
void KeepFreedMemory();

}  // namespace troop

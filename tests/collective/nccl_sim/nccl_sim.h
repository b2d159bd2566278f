#pragma once

// A library with the symbols that collective/nccl/nccl_library.h takes from NCCL and from CUDA's
// driver, over the memory of one host: ranks are threads or processes, a stream is a thread.
// Faults are requested by name:
//   connect_delay_ms, connect_hangs      a communicator takes long, or forever
//   operation_delay_ms                   each launch waits this long before its bytes move
//   launch_polls                         how often a launch is still "in progress"
//   error                                the result that the next launch gives later (0: none)
//   abort_delay_ms                       how long an abort takes
//   version                              what ncclGetVersion says
//   one_rank_a_device                    two ranks are refused, as newer libraries do
//   spoil                                results are wrong in a bit
// The environment's NCCL_SIM_ORDERS ("spoil=1 error=6") orders the same for a whole program.
extern "C" void NcclSimOrder(const char* what, int value);
// Communicators that were made and are not freed yet.
extern "C" int NcclSimAlive();
// Queues a call on a stream.
extern "C" void NcclSimCall(void* stream, void (*call)(void*), void* argument);

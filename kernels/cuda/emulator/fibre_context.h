#pragma once

#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

// Switch between fibers, which a block does some 100,000 times. For one source file only: it
// defines the function. swapcontext makes a system call for the signal mask each time; this saves
// only the callee-saved registers.
#ifdef __x86_64__
extern "C" void troop_switch_fibre(void** from, void* to);
asm(R"(
.text
.type troop_switch_fibre, @function
troop_switch_fibre:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size troop_switch_fibre, .-troop_switch_fibre
)");
#endif

namespace troop::cuda {

// Context: the state of a suspended fiber. Switch saves the running one in *from and continues *to.
// Prepare makes *context begin with `run` on an empty stack; `run` must not return.
#ifdef __x86_64__
using Context = void*;  // stack pointer below the saved registers
inline void Switch(Context* from, Context* to) { troop_switch_fibre(from, *to); }
inline void Prepare(Context* context, void* stack, std::size_t bytes, void (*run)()) {
  auto** top = reinterpret_cast<void**>(static_cast<std::byte*>(stack) + bytes);
  // Layout: six registers, the return address `run`, and an empty word, so that rsp is 8 modulo 16
  // at the entry of `run`, as after a call.
  top[-2] = reinterpret_cast<void*>(run);
  *context = top - 8;
}
#else
// The portable form makes a system call per switch (swapcontext keeps the signal mask).
using Context = ucontext_t;
inline void Switch(Context* from, Context* to) { swapcontext(from, to); }
inline void Prepare(Context* context, void* stack, std::size_t bytes, void (*run)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, run, 0);
}
#endif

}  // namespace troop::cuda

#pragma once

// Control bodies: small structs with `template <class A> void serialize(A& a) { a(x, y); }`.
// Fixed-width integers, f32, f64, bool, enums, std::string, std::vector, std::optional,
// std::map<std::string, …> and nested bodies.
// Encode never fails. Decode checks each size against the bytes that remain and a limit before it
// allocates, and refuses trailing bytes: bytes from the network are hostile.
//   std::string bytes = EncodeBody(body);
//   Result<Body> body = DecodeBody<Body>(bytes);
// The cereal archives behind them are in net/archive.h; no other folder includes cereal.
#include "net/archive.h"

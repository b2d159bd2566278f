#pragma once

// Encoding of control bodies: small structs with
//   template <class A> void serialize(A& a) { a(x, y); }
//
// Fields are fixed-width integers, f32, f64, bool, enums, std::string, std::vector, std::optional,
// std::map<std::string, …> and nested bodies. Encode can't fail. Bytes from the network are
// untrusted: Decode checks each size against the remaining bytes and a limit before it allocates,
// and rejects trailing bytes.
//   std::string bytes = EncodeBody(body);
//   Result<Body> body = DecodeBody<Body>(bytes);
//
// The cereal archives that implement this are in net/wire/archive.h; no other folder includes
// cereal.
#include "net/wire/archive.h"

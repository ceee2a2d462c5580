#pragma once
// The type and the message of an error, for tests that must tell both.

#include <string>

#include "shardwise/core/error.hpp"

namespace testing {

/// The error that `call` throws, and its type: "peer_error: rank 1: ..."; "" if it throws nothing.
/// Errors of other types and other exceptions pass.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const shardwise::argument_error& e) {
    return std::string("argument_error: ") + e.what();
  } catch (const shardwise::backend_error& e) {
    return std::string("backend_error: ") + e.what();
  } catch (const shardwise::collective_error& e) {
    return std::string("collective_error: ") + e.what();
  } catch (const shardwise::data_error& e) {
    return std::string("data_error: ") + e.what();
  } catch (const shardwise::memory_error& e) {
    return std::string("memory_error: ") + e.what();
  } catch (const shardwise::peer_error& e) {
    return std::string("peer_error: ") + e.what();
  } catch (const shardwise::shape_error& e) {
    return std::string("shape_error: ") + e.what();
  }
  return "";
}

/// Whether `error` is one of this type and has `part` in it.
inline bool says(const std::string& error, const std::string& type, const std::string& part) {
  return error.starts_with(type + ": ") && error.find(part) != std::string::npos;
}

}  // namespace testing

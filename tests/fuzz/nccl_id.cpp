// Any bytes as the file in which rank 0 gives NCCL's id to the others: either a data_error, or the
// id is the bytes of the file.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.hpp"
#include "shardwise/comm/nccl_id_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile file(fuzz::folder() / "id");
  const std::string_view bytes = fuzz::text_of(data, size);
  file.hold(bytes);
  fuzz::may_reject<shardwise::data_error>([&] {
    const auto id = shardwise::detail::nccl::read_id(fuzz::folder() / "id", 1);
    fuzz::require(id && std::string_view(id->internal, sizeof id->internal) == bytes,
                  "an id is all bytes of the file");
  });
  return 0;
}

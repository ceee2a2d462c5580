// IDX files: good ones, and every way in which one can be bad.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../../../examples/support/idx.hpp"
#include "support/messages.hpp"
#include "unit/examples/data_files.hpp"

namespace sw = shardwise;
using testing::check_mentions;
using testing::idx_bytes;
using testing::idx_header;
using testing::message_of;
using testing::TemporaryFolder;
using testing::write_gzip;

namespace {

/// What read_idx says about a file; empty if it reads it.
std::string complaint(const std::filesystem::path& path, std::size_t rank) {
  return message_of<sw::data_error>([&] { example::read_idx(path, rank, "install something"); });
}

}  // namespace

TEST_CASE("plain and gzip'd files are read alike") {
  const TemporaryFolder folder("shardwise_idx_good");
  for (const std::vector<std::uint32_t>& extents :
       {std::vector<std::uint32_t>{5}, {3, 4, 2}, {0, 28, 28}, {2, 1024, 1025}}) {
    const std::vector<std::uint8_t> bytes = idx_bytes(extents, 251);
    for (const auto& path : {folder.write("plain", bytes), write_gzip(folder, "gzip.gz", bytes)}) {
      const example::IdxArray array = example::read_idx(path, extents.size());
      CHECK(array.extents == std::vector<std::size_t>(extents.begin(), extents.end()));
      const auto header = static_cast<std::ptrdiff_t>(4 + 4 * extents.size());
      CHECK(array.values == std::vector<std::uint8_t>(bytes.begin() + header, bytes.end()));
    }
  }
}

TEST_CASE("a missing file says where it comes from") {
  const TemporaryFolder folder("shardwise_idx_missing");
  check_mentions(complaint(folder.path() / "nothing.gz", 1),
                 {"nothing.gz", "No such file", "install something"});
}

TEST_CASE("a folder is no file") {
  const TemporaryFolder folder("shardwise_idx_folder");
  CHECK(complaint(folder.path(), 1) != "");
}

TEST_CASE("a file with another header is refused") {
  const TemporaryFolder folder("shardwise_idx_header");
  std::vector<std::uint8_t> bytes = idx_bytes({4}, 251);
  bytes[0] = 0x89;
  check_mentions(complaint(folder.write("a", bytes), 1), {"no IDX file", "137"});
  bytes = idx_bytes({4}, 251);
  bytes[1] = 1;
  check_mentions(complaint(folder.write("a", bytes), 1), {"no IDX file"});
  bytes = idx_bytes({4}, 251);
  bytes[2] = 0x0D;
  check_mentions(complaint(folder.write("a", bytes), 1), {"type 13", "type 8"});
  check_mentions(complaint(folder.write("a", idx_bytes({4}, 251)), 3), {"has 1 axes where 3"});
}

TEST_CASE("a file that ends early is refused, wherever it ends") {
  const TemporaryFolder folder("shardwise_idx_short");
  const std::vector<std::uint8_t> whole = idx_bytes({3, 5}, 251);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::uint8_t> bytes(whole.begin(),
                                          whole.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string expected =
        size < 12 ? "ends inside its header" : "after " + std::to_string(size - 12) + " of the 15";
    check_mentions(complaint(folder.write("plain", bytes), 2), {expected});
    check_mentions(complaint(write_gzip(folder, "gzip.gz", bytes), 2), {expected});
  }
}

TEST_CASE("a gzip'd file that is cut or changed is refused") {
  const TemporaryFolder folder("shardwise_idx_gzip");
  const std::vector<std::uint8_t> whole = idx_bytes({100, 100}, 251);
  for (const std::uintmax_t cut : {1U, 8U, 20U, 100U}) {
    const auto path = write_gzip(folder, "cut.gz", whole);
    folder.shorten(path, cut);
    CHECK(complaint(path, 2) != "");
  }
  const auto path = write_gzip(folder, "changed.gz", whole);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-6, std::ios::end);  // inside the checksum
  file.put('\x5a');
  file.close();
  check_mentions(complaint(path, 2), {"damaged", "data check"});
}

TEST_CASE("bytes after the last element are refused") {
  const TemporaryFolder folder("shardwise_idx_long");
  std::vector<std::uint8_t> bytes = idx_bytes({3, 5}, 251);
  bytes.push_back(0);
  check_mentions(complaint(folder.write("plain", bytes), 2), {"goes on after the 15"});
  check_mentions(complaint(write_gzip(folder, "gzip.gz", bytes), 2), {"goes on after the 15"});
}

TEST_CASE("a header that announces absurd sizes takes no memory") {
  const TemporaryFolder folder("shardwise_idx_absurd");
  const std::uint32_t most = 0xffffffffU;
  check_mentions(complaint(folder.write("a", idx_header({most, most, most})), 3),
                 {"[4294967295, 4294967295, 4294967295]", "1073741824"});
  check_mentions(complaint(folder.write("a", idx_header({1U << 30, 2})), 2), {"more than"});
  check_mentions(complaint(folder.write("a", idx_header({most, most, 0})), 3), {"more than"});
  check_mentions(complaint(folder.write("a", idx_header({1U << 30})), 1),
                 {"ends after 0 of the 1073741824"});
}

// Files on the disk, alone and with an index: what is read of them, and what is refused.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "shardwise/checkpoint/load_parts.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/checkpoint/save_parts.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "support/file_tensors.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"
#include "unit/checkpoint/texts.hpp"

using namespace shardwise;
using testing::bytes_of_tensor;
using testing::check_mentions;
using testing::entry;
using testing::file_of;
using testing::message_of;
using testing::TemporaryFolder;

namespace {

std::string refusal(const std::filesystem::path& path) {
  return message_of<data_error>([&] { TensorFiles{path}; });
}

/// A file with one tensor of bytes.
std::string one(const std::string& name, const std::string& data,
                const std::string& metadata = "\"format\":\"pt\"") {
  const std::string size = std::to_string(data.size());
  return file_of(
      "{\"__metadata__\":{" + metadata + "}," + entry(name, "U8", size, "0," + size) + "}", data);
}

std::string index_of(const std::string& map) {
  return R"({"metadata":{"total_size":4},"weight_map":{)" + map + "}}";
}

}  // namespace

TEST_CASE("a number of a run is read as it was written, and nothing else is read as one") {
  for (const double number : {0.0, 0.1, 1.0 / 3, 1e-5, 65536.0, 1e300, 5e-324}) {
    double read = -1;
    CHECK(detail::read_state(detail::state_text(number), read));
    CHECK(read == number);
  }
  for (const char* text : {"", "0,5", "0.5x", "0x1p3", "nan", "inf", "1e999", "[1]"}) {
    CAPTURE(text);
    double read = -1;
    CHECK(!detail::read_state(text, read));
  }
}

TEST_CASE("tensors are found by name, in one file and in several") {
  const TemporaryFolder folder("shardwise_files_good");
  const auto single = folder.write("single.safetensors", one("a", "1234"));
  folder.write("first.safetensors", one("a", "1234"));
  folder.write("second.safetensors", one("b", "567", ""));
  const auto index =
      folder.write("model.safetensors.index.json",
                   "\n" + index_of(R"("b":"second.safetensors","a":"first.safetensors")") + "\n");
  CHECK(bytes_of_tensor(TensorFiles(single), "a") == "1234");
  for (const auto& path : {index, folder.path() / "model.safetensors"}) {
    const TensorFiles files(path);
    CHECK(files.tensors().size() == 2);
    CHECK(files.metadata().at("format") == "pt");
    CHECK(bytes_of_tensor(files, "a") == "1234");
    CHECK(bytes_of_tensor(files, "b") == "567");
    CHECK(files.fingerprint() != TensorFiles(single).fingerprint());
  }
  folder.write("model.safetensors", one("c", "x"));
  CHECK(TensorFiles(folder.path() / "model.safetensors").tensors().contains("c"));
}

TEST_CASE("tensors are read from their own files, and looked for in no other") {
  const TemporaryFolder folder("shardwise_files_own");
  folder.write("first.safetensors", one("b", "1234"));
  folder.write("second.safetensors", one("a", "567", ""));
  const TensorFiles files(
      folder.write("model.safetensors.index.json",
                   index_of(R"("a":"second.safetensors","b":"first.safetensors")")));
  std::vector<std::uint8_t> a(3), b(4);
  const auto part = [](const char* name, std::vector<std::uint8_t>& memory) {
    return part_of(name,
                   View<std::uint8_t, Invariant>(memory, {{Axis::feature, memory.size()}}, {}));
  };
  const auto tensors = detail::whole_tensors({part("a", a), part("b", b)});
  using List = std::vector<const detail::WholeTensor*>;
  CHECK(detail::tensors_by_file(files, tensors) ==
        std::vector{List{&tensors[1]}, List{&tensors[0]}});
  std::vector<detail::Checksum> checksums;
  for (const auto& staged : detail::read_parts(files, tensors, {}, checksums))
    detail::store(staged);
  CHECK(std::string(a.begin(), a.end()) == "567");
  CHECK(std::string(b.begin(), b.end()) == "1234");
}

TEST_CASE("links are followed") {
  const TemporaryFolder folder("shardwise_files_links");
  folder.write("blob", one("a", "1234"));
  std::filesystem::create_symlink("blob", folder.path() / "model.safetensors");
  CHECK(bytes_of_tensor(TensorFiles(folder.path() / "model.safetensors"), "a") == "1234");
}

TEST_CASE("what is no regular file is refused at once") {
  const TemporaryFolder folder("shardwise_files_kinds");
  check_mentions(refusal(folder.path() / "none.safetensors"),
                 {"none.safetensors", "No such file", "cannot be opened"});
  check_mentions(refusal(folder.path()), {"no regular file"});
  check_mentions(refusal("/dev/zero"), {"no regular file"});
  const auto pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check_mentions(refusal(pipe), {"no regular file"});
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  CHECK(refusal(folder.path() / "loop") != "");
}

TEST_CASE("a file that ends early or late is refused, wherever it ends") {
  const TemporaryFolder folder("shardwise_files_short");
  const std::string whole = one("a", "1234");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal(folder.write("a", whole.substr(0, size))) != "");
  }
  check_mentions(refusal(folder.write("a", std::string())), {"has 0 bytes"});
  check_mentions(refusal(folder.write("a", whole.substr(0, 7))), {"has 7 bytes"});
  check_mentions(refusal(folder.write("a", whole.substr(0, 20))), {"announces a header"});
  check_mentions(refusal(folder.write("a", whole.substr(0, whole.size() - 1))), {"cut short"});
  check_mentions(refusal(folder.write("a", whole + "5")), {"the file has 5 bytes"});
  check_mentions(refusal(folder.write("a", std::string(64, '\xff'))), {"announces a header"});
  check_mentions(refusal(folder.write("a", std::string(64, '\0'))), {"no JSON object"});
}

TEST_CASE("a file that is changed while it is read is noticed") {
  const TemporaryFolder folder("shardwise_files_changed");
  const auto path = folder.write("a", one("a", "1234"));
  const TensorFiles files(path);
  folder.write("b", one("a", "1235"));
  std::filesystem::rename(folder.path() / "b", path);
  check_mentions(message_of<data_error>([&] { bytes_of_tensor(files, "a"); }), {"was changed"});
  const auto file = detail::File::open(path, "checkpoint");
  folder.shorten(path, 2);
  std::string bytes(4, '\0');
  check_mentions(message_of<data_error>([&] {
                   file.read(std::filesystem::file_size(path) - 2,
                             std::as_writable_bytes(std::span(bytes)));
                 }),
                 {"2 bytes too early"});
}

TEST_CASE("a disk that is full says so") {
  const auto full = detail::File::create("/dev/full", "checkpoint");
  const std::string bytes(100, 'x');
  check_mentions(message_of<data_error>([&] { full.write(0, std::as_bytes(std::span(bytes))); }),
                 {"/dev/full", "cannot be written at byte 0", "No space left"});
}

TEST_CASE("names of shards do not leave the folder") {
  for (const char* name :
       {"a.safetensors", "model-00001-of-00002.safetensors", "ä b.safetensors"}) {
    CAPTURE(name);
    CHECK(detail::is_shard_name(name));
  }
  const std::string with_zero("a\0.safetensors", 14);
  for (const std::string& name : std::vector<std::string>{
           "", ".", "..", "/", "../a.safetensors", "/etc/a.safetensors", "b/a.safetensors",
           "..\\a.safetensors", "C:a.safetensors", ".safetensors", ".a.safetensors", "a.bin",
           "a.safetensors/", "a.safetensors.index.json", with_zero, "a\n.safetensors",
           std::string(300, 'a') + ".safetensors"}) {
    CAPTURE(name);
    CHECK(!detail::is_shard_name(name));
  }
}

TEST_CASE("an index that is none, or says what is not so, is refused") {
  struct Row {
    const char* what;
    std::string text;
    std::string said;
  };
  const TemporaryFolder folder("shardwise_files_index");
  folder.write("a.safetensors", one("a", "1234"));
  folder.write("b.safetensors", one("b", "567"));
  folder.write("c.safetensors", one("c", "8", "\"format\":\"tf\""));
  folder.write("again.safetensors", one("a", "1234"));
  folder.write("bad.safetensors", "no");
  const std::vector<Row> rows{
      {"nothing", "", "no JSON object"},
      {"a list", "[]", "no JSON object"},
      {"no map", R"({"metadata":{}})", "no weight_map"},
      {"a map that is a list", R"({"weight_map":[]})", "no JSON object"},
      {"a map twice", R"({"weight_map":{},"weight_map":{}})", "twice"},
      {"a tensor twice", index_of(R"("a":"a.safetensors","a":"a.safetensors")"), "twice"},
      {"a number as file", index_of(R"("a":1)"), "beside it"},
      {"an object as file", index_of(R"("a":{})"), "nested"},
      {"the folder above", index_of(R"("a":"../a.safetensors")"), "beside it"},
      {"an absolute path", index_of("\"a\":\"" + (folder.path() / "a.safetensors").string() + '"'),
       "beside it"},
      {"an escaped slash", index_of(R"("a":"..\u002fa.safetensors")"), "beside it"},
      {"an escaped zero byte", index_of(R"("a":"a.safetensors\u0000x")"), "beside it"},
      {"no name", index_of(R"("a":"")"), "beside it"},
      {"itself", index_of(R"("a":"model.safetensors.index.json")"), "beside it"},
      {"a file that is not there", index_of(R"("a":"d.safetensors")"), "No such file"},
      {"a file that is damaged", index_of(R"("a":"bad.safetensors")"), "bad.safetensors"},
      {"a tensor in another file", index_of(R"("a":"b.safetensors","b":"a.safetensors")"),
       "but it is not"},
      {"a tensor that is nowhere", index_of(R"("a":"a.safetensors","x":"a.safetensors")"),
       "'x' is in 'a.safetensors', but"},
      {"a tensor that it does not know", index_of(R"("b":"b.safetensors","x":"a.safetensors")"),
       "'x'"},
      {"a tensor in two files", index_of(R"("a":"a.safetensors","x":"again.safetensors")"),
       "as another file"},
      {"files of two checkpoints", index_of(R"("a":"a.safetensors","c":"c.safetensors")"),
       "two checkpoints"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const auto path = folder.write("model.safetensors.index.json", row.text);
    check_mentions(refusal(path), {"checkpoint ", row.said});
  }
  folder.write("model.safetensors.index.json", index_of(R"("b":"b.safetensors")"));
  folder.write("b.safetensors", file_of("{" + entry("b", "U8", "1", "0,1") + "," +
                                            entry("more", "U8", "1", "1,2") + "}",
                                        "12"));
  check_mentions(refusal(folder.path() / "model.safetensors"), {"'more'", "does not know"});
}

TEST_CASE("an index with anything beside its map is read") {
  const TemporaryFolder folder("shardwise_files_metadata");
  folder.write("a.safetensors", one("a", "1234"));
  const std::string map = R"("weight_map":{"a":"a.safetensors"})";
  for (const std::string more :
       {R"("metadata":{"total_size":4.0,"made_by":"x","n":null,"list":[1]})", R"("metadata":null)",
        R"("metadata":[{"a":{"b":[[],{}]}}])", R"("format":"pt")", R"("version":-1.5)",
        R"("by":{"weight_map":{"a":"b"}})", R"("metadata":{"k":1,"k":2})", R"("deep":[[[[1]]]])"}) {
    CAPTURE(more);
    for (const std::string& text : {"{" + more + "," + map + "}", "{" + map + "," + more + "}"}) {
      const auto path = folder.write("model.safetensors.index.json", text);
      CHECK(TensorFiles(path).tensors().size() == 1);
    }
  }
}

// A rank turns a matrix in blocks of 32 rows and columns, and collects numbers that lie apart in
// pieces of 256 KiB.
TEST_CASE("an error names 20 tensors of a kind, and counts the others") {
  for (const std::size_t count : {20U, 23U}) {
    detail::Mismatches found;
    for (std::size_t i = 0; i < count; ++i) found.add("missing", std::to_string(i));
    const std::string told = message_of<data_error>([&] { found.raise("file"); });
    check_mentions(
        told, {"missing: 0, 1, ", ", 18, 19" + std::string(count == 20 ? "." : " and 3 more.")});
  }
}

TEST_CASE("a message shows the first 100 characters of a name, without those that control") {
  const std::string longest(100, 'a');
  CHECK(detail::in_quotes(longest) == "'" + longest + "'");
  CHECK(detail::in_quotes(longest + 'b') == "'" + longest + "...'");
  CHECK(detail::in_quotes("a\x1f\n b\x7f\xc3\xa9") == "'a?? b?\xc3\xa9'");
}

TEST_CASE("tensors that are larger than a block or a piece") {
  constexpr std::size_t rows = 70, columns = 500, count = rows * columns;
  const Shape shape{{Axis::output, rows}, {Axis::input, columns}};
  const TemporaryFolder folder("shardwise_pieces");
  const auto path = folder.path() / "large.safetensors";
  SingleRank alone;
  const auto part_in = [&](std::vector<float>& memory, bool transposed) {
    return part_of(FileTensor("t", 0, transposed), View<float, Invariant>(memory.data(), shape, {}),
                   memory.data(), 2);
  };
  std::vector<float> numbers(2 * count, -1);
  for (std::size_t i = 0; i < count; ++i) numbers[2 * i] = static_cast<float>(i);
  for (const bool transposed : {false, true}) {
    CAPTURE(transposed);
    save_parts(path, alone, {part_in(numbers, transposed)}, {});
    const TensorFiles files(path);
    std::vector<float> in_file(count), expected(count), loaded(2 * count, -1);
    files.open(0).read(files.begin_of(files.tensors().at("t")),
                       std::as_writable_bytes(std::span(in_file)));
    for (std::size_t i = 0; i < count; ++i)
      expected[i] = static_cast<float>(transposed ? i % rows * columns + i / rows : i);
    CHECK(in_file == expected);
    load_parts(files, alone, {part_in(loaded, transposed)}, {},
               [](const std::string&) { return false; });
    CHECK(loaded == numbers);
  }
}

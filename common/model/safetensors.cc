// SPDX-License-Identifier: Apache-2.0
#include "common/model/safetensors.h"

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/model/bounded_json.h"
#include "common/model/safetensors_parser.h"

namespace specwire {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxQuoted = 256;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxQuoted)), "\"");
}

// The name of a file in the folder itself, and no other.
bool IsShardName(absl::string_view name) {
  constexpr size_t kMaxFileName = 255;
  return name.size() <= kMaxFileName && absl::EndsWith(name, ".safetensors") &&
         !absl::StartsWith(name, ".") && !absl::StrContains(name, '/') &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

// Reads an index:
//   {"weight_map": {<tensor's name>: <file's name>, ...}, ...}
// and hands every pair on. What else it has is of no use.
class IndexEvents final : public JsonEvents {
 public:
  // Returns an empty text or the problem with a tensor and its file.
  using Pair = absl::FunctionRef<std::string(absl::string_view tensor,
                                             absl::string_view shard)>;

  explicit IndexEvents(Pair pair) : pair_(pair) {}
  bool has_weight_map() const { return has_weight_map_; }

  bool null() override { return Ignored(); }
  bool boolean(bool /*value*/) override { return Ignored(); }
  bool number_integer(number_integer_t /*value*/) override { return Ignored(); }
  bool number_unsigned(number_unsigned_t /*value*/) override {
    return Ignored();
  }
  bool number_float(number_float_t /*value*/,
                    const string_t& /*text*/) override {
    return Ignored();
  }
  bool StartArray() override { return Ignored(); }
  bool StartObject() override {
    if (in_weight_map_) return Unexpected();
    in_weight_map_ = depth() == 1 && name_ == kWeightMap;
    if (in_weight_map_ && std::exchange(has_weight_map_, true)) {
      return Fail(absl::StrCat(kWeightMap, ": occurs twice"));
    }
    return true;
  }
  bool EndObject() override {
    in_weight_map_ = false;
    return true;
  }
  bool key(string_t& name) override {
    if (in_weight_map_ || depth() == 1) name_ = name;
    return true;
  }
  bool string(string_t& value) override {
    if (!in_weight_map_) return Ignored();
    const std::string problem = pair_(name_, value);
    return problem.empty() || Fail(problem);
  }

 private:
  static constexpr absl::string_view kWeightMap = "weight_map";

  // A value that is of no use.
  bool Ignored() {
    const bool is_map = depth() == 1 && name_ == kWeightMap;
    return (depth() > 0 && !in_weight_map_ && !is_map) || Unexpected();
  }
  bool Unexpected() override {
    return Fail(depth() == 0
                    ? "must be a JSON object"
                    : absl::StrCat(kWeightMap, ": must map texts to texts"));
  }

  const Pair pair_;
  bool in_weight_map_ = false;
  bool has_weight_map_ = false;
  std::string name_;
};

absl::Status ReadIndex(const std::string& path,
                       absl::Span<const uint8_t> bytes,
                       IndexEvents::Pair pair) {
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()),
                               bytes.size());
  IndexEvents events(pair);
  absl::Status status = ReadJson("", text, TightJsonLimits(text), &events);
  if (status.ok() && !events.has_weight_map()) {
    status = absl::InvalidArgumentError("weight_map: is absent");
  }
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::Status SafetensorsModel::Add(const std::string& path,
                                   std::unique_ptr<MappedFile> file) {
  num_bytes_ += file->bytes().size();
  const absl::Status status =
      ParseSafetensors(file->bytes(), MaxTensors(num_bytes_), &tensors_);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", status.message()));
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

// The index is read twice, first for its files' names and then to compare it
// with what they have, so that it need not be kept.
absl::Status SafetensorsModel::AddShards(const std::string& folder,
                                         const MappedFile& index) {
  const std::string& path = tensors_.path();
  num_bytes_ = index.bytes().size();
  // Hundreds of bytes each; an index has far more about every file.
  const size_t max_shards = 32 + num_bytes_ / 512;
  absl::flat_hash_map<std::string, size_t> shards;
  std::vector<std::string> names;
  SPECWIRE_RETURN_IF_ERROR(ReadIndex(
      path, index.bytes(), [&](absl::string_view, absl::string_view shard) {
        if (!shards.try_emplace(shard, names.size()).second) {
          return std::string();
        }
        names.emplace_back(shard);
        if (!IsShardName(shard)) {
          return absl::StrCat("weight_map: ",
                              Quoted(shard),
                              " is not a plain name of a .safetensors file");
        }
        return names.size() <= max_shards
                   ? std::string()
                   : absl::StrCat("weight_map: more than ",
                                  max_shards,
                                  " files, too many for its size");
      }));

  // Where the tensors of each file begin in the table.
  std::vector<size_t> begins;
  for (const std::string& name : names) {
    const std::string shard_path = absl::StrCat(folder, "/", name);
    SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file,
                              MappedFile::Open(shard_path));
    begins.push_back(tensors_.tensors().size());
    SPECWIRE_RETURN_IF_ERROR(Add(shard_path, std::move(file)));
  }
  const absl::Span<const FileTensor> tensors = tensors_.tensors();
  begins.push_back(tensors.size());

  std::vector<bool> listed(tensors.size());
  SPECWIRE_RETURN_IF_ERROR(ReadIndex(
      path,
      index.bytes(),
      [&](absl::string_view name, absl::string_view shard) -> std::string {
        const auto file = shards.find(shard);
        // In a mapped file the owner may have changed it since.
        if (file == shards.end()) return "the file has changed while in use";
        const FileTensor* const tensor = tensors_.Find(name);
        const auto place = static_cast<size_t>(
            tensor == nullptr ? 0 : tensor - tensors.data());
        if (tensor == nullptr || place < begins[file->second] ||
            place >= begins[file->second + 1]) {
          return absl::StrCat("weight_map: tensor ",
                              Quoted(name),
                              " is not in ",
                              Quoted(shard));
        }
        if (listed[place]) {
          return absl::StrCat(
              "weight_map: tensor ", Quoted(name), " occurs twice");
        }
        listed[place] = true;
        return {};
      }));
  const auto missed = std::find(listed.begin(), listed.end(), false);
  if (missed != listed.end()) {
    const auto place = static_cast<size_t>(missed - listed.begin());
    return tensors_.Error(absl::StrCat("tensor ", tensors[place].name),
                          "is in a file, but not in the weight_map");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SafetensorsModel>> SafetensorsModel::Open(
    const std::string& folder) {
  const std::string single = absl::StrCat(folder, "/", kSingleFile);
  absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(single);
  if (file.ok()) {
    std::unique_ptr<SafetensorsModel> model(new SafetensorsModel(single));
    SPECWIRE_RETURN_IF_ERROR(model->Add(single, *std::move(file)));
    return model;
  }
  if (!absl::IsNotFound(file.status())) return file.status();

  const std::string index_path = absl::StrCat(folder, "/", kIndexFile);
  const absl::StatusOr<std::unique_ptr<MappedFile>> index =
      MappedFile::Open(index_path);
  if (absl::IsNotFound(index.status())) {
    return absl::NotFoundError(absl::StrCat(
        folder, ": has neither ", kSingleFile, " nor ", kIndexFile));
  }
  if (!index.ok()) return index.status();
  std::unique_ptr<SafetensorsModel> model(new SafetensorsModel(index_path));
  SPECWIRE_RETURN_IF_ERROR(model->AddShards(folder, **index));
  return model;
}

}  // namespace specwire

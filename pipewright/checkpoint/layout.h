#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pipewright {

// A folder of checkpoints:
//
//     DIR/step-00000100/                              whole
//         model-00001-of-00017.safetensors            the weights of one group of layers
//         ...
//         model.safetensors.index.json                which tensor is in which file
//         optimizer-00001-of-00017.safetensors        the optimizer's state of the same layers
//         ...
//         optimizer.safetensors.index.json
//         checkpoint.json                             step, state, the checksum of every file
//     DIR/.step-00000120.writing/                     being written: renamed when all of it is on
//     disk DIR/.step-00000100.replaced/                    the old one while its step is saved once
//     more DIR/.step-00000080.removing/                    being removed
//
// The weights are where Hugging Face's tools look for them.

enum class Part : std::uint8_t { kWeights, kOptimizer };
inline constexpr std::array kAllParts = {Part::kWeights, Part::kOptimizer};

inline constexpr std::string_view kManifestFile = "checkpoint.json";

/// The first word of a part's file names: model, optimizer.
std::string_view part_name(Part part);
std::optional<Part> parse_part(std::string_view name);

/// model-00003-of-00017.safetensors for group 2 of 17.
std::string group_file(Part part, int group, int num_groups);

/// model.safetensors.index.json
std::string index_file(Part part);

/// step-00000120
std::string step_folder(std::int64_t step);

/// The step of a folder of exactly that name, if it is one.
std::optional<std::int64_t> parse_step_folder(std::string_view name);

/// Folders beside a checkpoint's own.
enum class Beside : std::uint8_t { kWriting, kReplaced, kRemoving };
std::string beside_folder(std::int64_t step, Beside beside);

struct BesideFolder {
  std::int64_t step = 0;
  Beside beside = Beside::kWriting;
};
std::optional<BesideFolder> parse_beside_folder(std::string_view name);

/// True for a name that stays in its folder: letters, digits, '.', '_' and '-', no '.' in front.
bool is_plain_file_name(std::string_view name);

/// `folder`/`name`
std::string in_folder(const std::string& folder, std::string_view name);

}  // namespace pipewright

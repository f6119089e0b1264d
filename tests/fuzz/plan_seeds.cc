// Writes the seeds of the plan fuzzer: plan_seeds tests/fuzz/corpus/plan
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "ir/plan_io.h"
#include "tests/ir/plan_fixture.h"

namespace {

void Write(const std::string& path, char mode, absl::Span<const uint8_t> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.put(mode);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

void WriteFlatBuffer(const std::string& path, const quire::plan::PlanT& plan) {
  flatbuffers::FlatBufferBuilder builder;
  quire::plan::FinishPlanBuffer(builder, quire::plan::Plan::Pack(builder, &plan));
  Write(path, 1, {builder.GetBufferPointer(), builder.GetSize()});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: plan_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  quire::plan::PlanT plan = quire::testing::TinyPlan();
  WriteFlatBuffer(folder + "/flatbuffer", plan);

  const std::string path = folder + "/packed.qplan";
  auto writer = quire::PlanWriter::Create(path, {.force = true});
  if (!writer.ok()) return 1;
  for (auto& slot : plan.targets[0]->weights) {
    if (!writer->AddPacked(std::vector<uint8_t>(768, 7), slot.get()).ok()) return 1;
  }
  auto binary = std::make_unique<quire::plan::KernelBinaryT>();
  binary->architecture = "sm_90a";
  binary->entry = "linear_few_8";
  binary->key = "0123456789abcdef0123456789abcdef";
  if (!writer->AddBinary(std::vector<uint8_t>(300, 9), binary.get()).ok()) return 1;
  plan.targets[0]->kernels[2]->binaries.push_back(std::move(binary));
  if (!writer->Finish(plan).ok()) return 1;
  WriteFlatBuffer(folder + "/flatbuffer_with_sections", plan);
  auto file = quire::MappedFile::Open(path);
  if (!file.ok()) return 1;
  Write(folder + "/file", 0, file->bytes());
  std::filesystem::remove(path);
  return 0;
}

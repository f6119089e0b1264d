// The CPU as a device: kernels from codegen/cpu, one thread pool, memory from the process.
//
// A page holds, for each KV layer of the plan in order, K and V as codegen/cpu/abi.h lays them out;
// a layer begins at a multiple of 64 bytes. Pages are zero until written, so that what is read past
// a context is finite.
#ifndef QUIRE_RUNTIME_CPU_DEVICE_H_
#define QUIRE_RUNTIME_CPU_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "codegen/cpu/jit.h"
#include "runtime/device.h"

namespace quire {

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const DeviceOptions& options);
// The same for another instruction set than the machine's best, to compare them on one machine.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const DeviceOptions& options,
                                                        const Isa& isa);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CPU_DEVICE_H_

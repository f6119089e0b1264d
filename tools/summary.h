// Texts that verbs print: the summary after a compilation, and the first page of a dump.
#ifndef QUIRE_TOOLS_SUMMARY_H_
#define QUIRE_TOOLS_SUMMARY_H_

#include <cstdint>
#include <string>

#include "ir/plan_generated.h"
#include "tools/assemble_plan.h"

namespace quire {

// "134.5 M", "13.2 GB": three significant digits.
std::string CountText(double count);
std::string BytesText(double bytes);

// Bytes of one token's keys and values over all layers of a target with this cache.
int64_t KvBytesPerToken(const plan::TargetT& target, plan::KvCache cache = plan::KvCache::Self);

std::string PlanSummary(const plan::PlanT& plan);
std::string CompileSummary(const AssembledPlan& assembled, const std::string& path);

}  // namespace quire

#endif  // QUIRE_TOOLS_SUMMARY_H_

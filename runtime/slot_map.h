// Values by ids that are given out here: found by an index, not by a hash.
//
// An id is a slot and how often it was used before, so that it is never given twice, and one whose
// value has gone finds nothing. Values move when others are added.
#ifndef QUIRE_RUNTIME_SLOT_MAP_H_
#define QUIRE_RUNTIME_SLOT_MAP_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace quire {

template <typename T>
class SlotMap {
 public:
  using Id = int64_t;

  Id Add(T value) {
    if (free_.empty()) {
      free_.push_back(static_cast<int64_t>(slots_.size()));
      slots_.emplace_back();
    }
    const int64_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[static_cast<size_t>(index)];
    slot.value = std::move(value);
    slot.id = slot.next_id + index;
    slot.next_id += kSlots;
    return slot.id;
  }
  // Null for an id that was never given, or whose value has gone.
  T* Find(Id id) {
    const auto index = static_cast<size_t>(id % kSlots);
    return id >= 0 && index < slots_.size() && slots_[index].id == id ? &slots_[index].value
                                                                      : nullptr;
  }
  const T* Find(Id id) const { return const_cast<SlotMap*>(this)->Find(id); }
  // REQUIRES: Find(id) finds it.
  void Erase(Id id) {
    const int64_t index = id % kSlots;
    Slot& slot = slots_[static_cast<size_t>(index)];
    slot.value = T();
    slot.id = kNone;
    free_.push_back(index);
  }

  // Calls `visit(id, value)` for each.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.id != kNone) visit(slot.id, slot.value);
    }
  }

 private:
  // More than there is memory for; a slot can be used as often again.
  static constexpr int64_t kSlots = int64_t{1} << 31;
  static constexpr Id kNone = -1;
  struct Slot {
    T value = T();
    Id id = kNone;
    int64_t next_id = kSlots;
  };

  std::vector<Slot> slots_;
  std::vector<int64_t> free_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_SLOT_MAP_H_

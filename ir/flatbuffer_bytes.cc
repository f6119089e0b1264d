#include "ir/flatbuffer_bytes.h"

#include <algorithm>

namespace quire {
namespace {

using flatbuffers::TypeTable;
using flatbuffers::uoffset_t;

uint64_t BytesOfScalar(unsigned short base_type) {
  switch (base_type) {
    case flatbuffers::ET_UTYPE:
    case flatbuffers::ET_BOOL:
    case flatbuffers::ET_CHAR:
    case flatbuffers::ET_UCHAR:
      return 1;
    case flatbuffers::ET_SHORT:
    case flatbuffers::ET_USHORT:
      return 2;
    case flatbuffers::ET_LONG:
    case flatbuffers::ET_ULONG:
    case flatbuffers::ET_DOUBLE:
      return 8;
    default:
      return 4;
  }
}

// Subtracts what it visits from a budget and stops as soon as that is spent.
class Budget {
 public:
  explicit Budget(uint64_t bytes) : left_(bytes) {}

  bool Table(const flatbuffers::Table& table, const TypeTable& type) {
    if (!Spend(sizeof(flatbuffers::soffset_t))) return false;
    for (size_t i = 0; i < type.num_elems; ++i) {
      const auto field = static_cast<flatbuffers::voffset_t>(4 + 2 * i);
      if (table.GetOptionalFieldOffset(field) == 0) continue;
      const flatbuffers::TypeCode& code = type.type_codes[i];
      const TypeTable* of = code.sequence_ref >= 0 && code.base_type == flatbuffers::ET_SEQUENCE
                                ? type.type_refs[code.sequence_ref]()
                                : nullptr;
      if (code.is_repeating ? !Vector(table.GetPointer<const uint8_t*>(field), code, of)
                            : !Field(table, field, code, of)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool Spend(uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  static bool IsStruct(const TypeTable* of) {
    return of != nullptr && of->st == flatbuffers::ST_STRUCT;
  }
  static uint64_t AlignmentOf(const flatbuffers::TypeCode& code, const TypeTable* of) {
    if (!IsStruct(of)) return BytesOfScalar(code.base_type);
    uint64_t alignment = 1;
    for (size_t i = 0; i < of->num_elems; ++i) {
      alignment = std::max(alignment, BytesOfScalar(of->type_codes[i].base_type));
    }
    return alignment;
  }
  static uint64_t StructBytes(const TypeTable& of) {
    return static_cast<uint64_t>(of.values[of.num_elems]);
  }

  bool String(const flatbuffers::String& text) {
    return Spend(sizeof(uoffset_t) + text.size() + 1);
  }

  bool Field(const flatbuffers::Table& table, flatbuffers::voffset_t field,
             const flatbuffers::TypeCode& code, const TypeTable* of) {
    if (IsStruct(of)) return Spend(StructBytes(*of));
    if (!Spend(BytesOfScalar(code.base_type))) return false;
    if (code.base_type == flatbuffers::ET_STRING) {
      return String(*table.GetPointer<const flatbuffers::String*>(field));
    }
    return of == nullptr || Table(*table.GetPointer<const flatbuffers::Table*>(field), *of);
  }

  bool Vector(const uint8_t* data, const flatbuffers::TypeCode& code, const TypeTable* of) {
    const auto* offsets =
        reinterpret_cast<const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::Table>>*>(data);
    const uint64_t element_bytes = IsStruct(of) ? StructBytes(*of) : BytesOfScalar(code.base_type);
    if (!Spend(sizeof(uoffset_t) + offsets->size() * element_bytes)) return false;
    if (reinterpret_cast<uintptr_t>(data + sizeof(uoffset_t)) % AlignmentOf(code, of) != 0) {
      return false;
    }
    if (IsStruct(of)) return true;
    if (code.base_type == flatbuffers::ET_STRING) {
      const auto* texts =
          reinterpret_cast<const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>*>(
              data);
      for (uoffset_t i = 0; i < texts->size(); ++i) {
        if (!String(*texts->Get(i))) return false;
      }
    } else if (of != nullptr) {
      for (uoffset_t i = 0; i < offsets->size(); ++i) {
        if (!Table(*offsets->Get(i), *of)) return false;
      }
    }
    return true;
  }

  uint64_t left_;
};

}  // namespace

bool UnpacksWithin(const flatbuffers::Table& root, const TypeTable& type, uint64_t limit_bytes) {
  return Budget(limit_bytes).Table(root, type);
}

}  // namespace quire

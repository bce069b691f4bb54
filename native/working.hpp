// What those share that put a call's tasks on threads: room to work in, and the caller's watch.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "call.hpp"

namespace regard {

inline std::unique_ptr<char, void (*)(void *)> room(int64_t bytes) {
    char *p = (char *)std::malloc(bytes + 64);
    if (!p) throw std::bad_alloc();
    return {p, std::free};
}

struct Polling : Watch {
    const std::function<void()> &ask;

    Polling(std::atomic<bool> &stop, const std::function<void()> &ask)
        : Watch{&stop, [](Watch &self) { static_cast<Polling &>(self).ask(); }}, ask(ask) {}
};

}  // namespace regard

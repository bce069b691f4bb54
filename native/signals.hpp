// Ctrl-C during a call: what the bindings share.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>

// Looks for signals every 30 ms; only the main thread ever finds one.
class Signals {
  public:
    std::atomic<bool> stop{false};

    void look() {
        if (interrupted_) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(30)) return;
        last_ = now;
        nanobind::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) interrupted_ = stop = true;
    }
    void raise() const {
        if (interrupted_) throw nanobind::python_error();
    }

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    bool interrupted_ = false;
};

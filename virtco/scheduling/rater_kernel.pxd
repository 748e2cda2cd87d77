# What kernels use of the arrays; see rater_kernel.py.

cdef extern from *:
    int popcount "__builtin_popcountll" (unsigned long long) nogil

cdef class Rater:
    cdef double[::1] cap, base, weight, load, scale
    cdef long long[::1] flow_ptr, entry_ptr, split, skip
    cdef int[::1] src, dst, owner, port, alive, first, last
    # Results.
    cdef readonly double[::1] residual, pace, extra_rate, floor
    cdef readonly long long[::1] extra_flow
    cdef readonly Py_ssize_t n_extra
    cdef bint has_up
    cdef long long[::1] up_ptr
    cdef int[::1] up
    # Sets of ports, in words of 64: egress, then ingress, then uplinks; the
    # first two have n_words each, all together all_words.
    cdef bint has_sets
    cdef Py_ssize_t n_hosts, n_words, all_words
    cdef long long[::1] word
    cdef unsigned long long[::1] bit, all_open, open_ports, used_ports, had_ports
    # Sets of ingress ports, n_words of them for each egress entry.
    cdef long long[::1] row_at
    cdef unsigned long long[::1] row_alive, row_had
    # How many ports of a set come before each of its words.
    cdef int[::1] ports_before, row_before
    # Scratch.
    cdef double[::1] demand, share, rising_weight
    cdef long long[::1] flows, count, start, place, rising, chosen
    cdef int[::1] at_port
    cdef unsigned char[::1] stopped

cdef void end_in_row(Rater rater, Py_ssize_t f) noexcept nogil
cdef void start_in_row(Rater rater, Py_ssize_t f) noexcept nogil
cdef void enter_port(Rater rater, Py_ssize_t c, Py_ssize_t p) noexcept nogil
cdef void leave_port(Rater rater, Py_ssize_t c, Py_ssize_t p) noexcept nogil
cdef void clear(Rater rater) noexcept nogil

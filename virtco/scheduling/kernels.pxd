# What kernels of other modules use of these; see kernels.py.

cdef extern from *:
    int popcount "__builtin_popcountll" (unsigned long long) nogil
    int lowest "__builtin_ctzll" (unsigned long long) nogil

cdef double FULL

cdef class Rater:
    cdef double[::1] cap, base, weight, load, scale
    cdef long long[::1] flow_ptr, entry_ptr, split, skip
    cdef int[::1] src, dst, owner, port, alive, first, last
    # Results.
    cdef double[::1] residual, pace, extra_rate
    cdef long long[::1] extra_flow
    cdef readonly Py_ssize_t n_extra
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
cdef Py_ssize_t next_alive(Rater rater, Py_ssize_t f) noexcept nogil
cdef void start_in_row(Rater rater, Py_ssize_t f) noexcept nogil
cdef void enter_port(Rater rater, Py_ssize_t c, Py_ssize_t p) noexcept nogil
cdef void leave_port(Rater rater, Py_ssize_t c, Py_ssize_t p) noexcept nogil
cpdef void sort(long long[::1] order, Py_ssize_t n, long long[::1] level,
                double[::1] key) noexcept nogil
cpdef void rank_repeating(long long[::1] order, long long[::1] level,
                          double[::1] alone_s, double[::1] intensity,
                          double[::1] key) noexcept nogil
cpdef void swap_neighbours(Rater rater, long long[::1] order,
                           long long[::1] level) noexcept nogil
cpdef void allocate(Rater rater, long long[::1] order, Py_ssize_t n_lifted,
                    int sharing, int backfill, double horizon_s,
                    double trickle, double[::1] weights,
                    double[::1] alone_s) noexcept nogil

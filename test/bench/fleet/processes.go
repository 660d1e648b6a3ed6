// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the kernel's unit of CPU time in /proc: a hundredth of a second on every Linux that Go runs on (USER_HZ).
const tick = 10 * time.Millisecond

// What the kernel tells of a process' memory. Source: proc_pid_status(5).
const (
	peakField     = "VmHWM:"
	residentField = "VmRSS:"
)

// peakMemory is the most memory that a process ever held, in MiB.
func peakMemory(pid int) (float64, error) { return memoryOf(pid, peakField) }

// residentMemory is the memory that a process holds now, in MiB.
func residentMemory(pid int) (float64, error) { return memoryOf(pid, residentField) }

func memoryOf(pid int, field string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return parseMemory(text, field)
}

func parseMemory(status []byte, field string) (float64, error) {
	for line := range bytes.Lines(status) {
		if rest, found := bytes.CutPrefix(line, []byte(field)); found {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 64)
			if err != nil {
				return 0, fmt.Errorf("memory: %q: %w", line, err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("memory: /proc tells no %s", field)
}

// stat is a line of /proc/PID/stat. Source: proc_pid_stat(5).
type stat struct {
	parent int
	cpu    time.Duration
}

func parseStat(text string) (stat, error) {
	// The name is in parentheses and may hold anything; the fields after it are counted from 3.
	_, rest, found := cutLast(text, ")")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return stat{}, fmt.Errorf("process: %q is no line of /proc/PID/stat", text)
	}
	var numbers [3]int
	for i, field := range []int{4, 14, 15} { // ppid, utime, stime
		n, err := strconv.Atoi(fields[field-3])
		if err != nil {
			return stat{}, fmt.Errorf("process: field %d of %q: %w", field, text, err)
		}
		numbers[i] = n
	}
	return stat{parent: numbers[0], cpu: time.Duration(numbers[1]+numbers[2]) * tick}, nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// cpuTimes are the CPU times so far of this process and of those that it started, by the program's name.
func cpuTimes() (map[string]time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	stats := map[int]stat{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it ended meanwhile
		}
		if stats[pid], err = parseStat(string(text)); err != nil {
			return nil, err
		}
	}
	out := map[string]time.Duration{}
	for pid, each := range stats {
		if descends(pid, os.Getpid(), stats) {
			out[programOf(pid)] += each.cpu
		}
	}
	return out, nil
}

// descends tells whether a process is another one or was started by it.
func descends(pid, from int, stats map[int]stat) bool {
	for range len(stats) {
		if pid == from {
			return true
		}
		parent, known := stats[pid]
		if !known {
			return false
		}
		pid = parent.parent
	}
	return false
}

// programOf is the name that a process was called by.
func programOf(pid int) string {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(line) == 0 {
		return "ended"
	}
	called, _, _ := bytes.Cut(line, []byte{0})
	return filepath.Base(string(called))
}

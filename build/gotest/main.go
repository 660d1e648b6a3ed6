// SPDX-License-Identifier: Apache-2.0

// Command gotest runs `go test` with the arguments after "--", prints what a person wants to see of it while it
// runs (each package's result, the output of what failed, and who is still running when it is quiet for long),
// and writes how many tests passed, failed and were skipped to a file.
//
//	go run ./build/gotest -counts .local/test/unit.counts -- ./pkg/...
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// quiet is how long nothing may be printed before the running tests are named.
const quiet = 30 * time.Second

func main() {
	counts := flag.String("counts", "", "file that gets the numbers of tests passed, failed and skipped")
	each := flag.Bool("each", false, "print a line for each test, not for each package only")
	flag.Parse()
	// An interrupt reaches the tests too (one process group): they stop, and what is known by then is reported.
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(signals, flag.Args(), *counts, *each, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if failed || err != nil {
		stop()
		os.Exit(1)
	}
}

// run reports whether any test, build or package failed.
func run(signals context.Context, args []string, counts string, each bool, out io.Writer) (bool, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return true, fmt.Errorf("open the output of go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return true, fmt.Errorf("start go test: %w", err)
	}
	report := newReport(out, each)
	follow(signals, stream, report)
	waitErr := cmd.Wait()
	fmt.Fprintln(out, report.summary())
	if counts != "" {
		line := fmt.Sprintf("%d %d %d\n", report.passed, report.failed, report.skipped)
		if err := os.WriteFile(counts, []byte(line), 0o644); err != nil {
			return true, fmt.Errorf("write the counts: %w", err)
		}
	}
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) {
		return true, fmt.Errorf("wait for go test: %w", waitErr)
	}
	return waitErr != nil || report.failed > 0, nil
}

// follow hands each line of the stream to the report until the stream ends.
func follow(signals context.Context, stream io.Reader, report *report) {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		reader := bufio.NewReaderSize(stream, 64<<10)
		for {
			line, err := reader.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	timer := time.NewTicker(quiet)
	defer timer.Stop()
	interrupted := signals.Done()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			if report.line(line) {
				timer.Reset(quiet)
			}
		case now := <-timer.C:
			report.stillRunning(now)
		case <-interrupted:
			report.stillRunning(time.Now())
			interrupted = nil
		}
	}
}

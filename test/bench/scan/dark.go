// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/bench/report"
)

var (
	// darkNetwork is in a namespace where nobody else is.
	darkNetwork = netip.MustParsePrefix("127.77.0.0/20")
	// darkAtOnce is the same with an eighth of the addresses, which are all looked at at once.
	darkAtOnce = netip.MustParsePrefix("127.77.0.0/23")
)

// What ichor-controller does without flags: --scan-concurrency, --scan-rate, and the prober's timeout.
const (
	defaultConcurrency = 256
	defaultRate        = 500
	connectTimeout     = 2 * time.Second
)

// darkResult is how a search went where nothing answers.
type darkResult struct {
	Scan scanResult
	// Busiest is how many packets asked for a connection in one second, at most.
	Busiest int
}

// measureDark lets Ichor scan a network in which every packet is dropped.
func measureDark(ctx context.Context) ([]report.Row, error) {
	defaults, err := runDark(ctx, scanTask{Network: darkNetwork, Concurrency: defaultConcurrency, Rate: defaultRate})
	if err != nil {
		return nil, err
	}
	all := 1 << (32 - darkAtOnce.Bits())
	atOnce, err := runDark(ctx, scanTask{Network: darkAtOnce, Concurrency: all, Rate: defaultRate / 2})
	if err != nil {
		return nil, err
	}
	ideal := connectTimeout.Seconds() * float64(int(1)<<(32-darkNetwork.Bits())) / defaultConcurrency
	return []report.Row{
		report.Compare("/20, all dropped, defaults; timeout × addresses ÷ concurrency", defaults.Scan.Took.Seconds(), ideal, "s", 1.2),
		report.Compare("the same: packets in the busiest second; --scan-rate", float64(defaults.Busiest), defaultRate, "1/s", 1),
		report.Compare("/23, all dropped, all at once: packets in the busiest second; --scan-rate", float64(atOnce.Busiest), defaultRate/2, "1/s", 1),
	}, nil
}

func runDark(ctx context.Context, task scanTask) (darkResult, error) {
	fmt.Fprintf(os.Stderr, "scanning %s, where nothing answers: %d addresses at a time, %v packets a second\n", task.Network, task.Concurrency, task.Rate)
	result, _, err := child[darkResult](ctx, "dark", task, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) {
		return darkResult{}, fmt.Errorf("packets are dropped in a namespace of the benchmark's own, which isn't allowed here (try: unshare -Urn true): %w", err)
	}
	if addresses := int32(1) << (32 - task.Network.Bits()); err == nil && result.Scan.Status.Unreachable != addresses {
		return darkResult{}, fmt.Errorf("%d of %d addresses were silent", result.Scan.Status.Unreachable, addresses)
	}
	return result, err
}

// dropRule drops and counts what asks for a connection.
const dropRule = `table inet bench {
	counter asked { }
	chain input {
		type filter hook input priority 0; policy accept;
		ip daddr %s tcp dport %d counter name asked drop
	}
}
`

// scanDark is run in namespaces of its own.
func scanDark(ctx context.Context, task scanTask) (darkResult, error) {
	if err := raiseLoopback(); err != nil {
		return darkResult{}, err
	}
	if _, err := nft(ctx, fmt.Sprintf(dropRule, task.Network, talos.Port), "-f", "-"); err != nil {
		return darkResult{}, err
	}
	counter, err := startCapture()
	if err != nil {
		return darkResult{}, err
	}
	scan, err := scanOurs(ctx, task)
	sent, captureErr := counter.stop()
	if err := errors.Join(err, captureErr); err != nil {
		return darkResult{}, err
	}
	listed, err := nft(ctx, "", "list", "counter", "inet", "bench", "asked")
	if err != nil {
		return darkResult{}, err
	}
	dropped, err := counted(listed)
	if err != nil {
		return darkResult{}, err
	}
	if dropped != len(sent) {
		return darkResult{}, fmt.Errorf("%d packets were dropped, and the capture has %d", dropped, len(sent))
	}
	return darkResult{Scan: scan, Busiest: busiest(sent)}, nil
}

func nft(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	var out, faults bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &faults
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(faults.String()))
	}
	return out.String(), nil
}

var nftPackets = regexp.MustCompile(`packets (\d+)`)

// counted reads the packets of a counter as nft lists it.
func counted(listed string) (int, error) {
	found := nftPackets.FindStringSubmatch(listed)
	if found == nil {
		return 0, fmt.Errorf("nft lists no packets: %.200q", listed)
	}
	return strconv.Atoi(found[1])
}

// busiest is the largest number of packets in any second; they are in order.
func busiest(sent []time.Time) int {
	most, first := 0, 0
	for i := range sent {
		for sent[i].Sub(sent[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

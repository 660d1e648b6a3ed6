// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
)

func TestTheMachinesOwnTimeGoesByWaves(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		machines, parallel int
		want               time.Duration
	}{
		{1000, 100, 10 * time.Minute},
		{1001, 100, 11 * time.Minute},
		{7, 100, time.Minute},
	} {
		s := settings{machines: tc.machines, parallel: tc.parallel, install: 40 * time.Second, reboot: 20 * time.Second}
		if got := s.own(); got != tc.want {
			t.Errorf("%d machines, %d at a time: want %s, got %s", tc.machines, tc.parallel, tc.want, got)
		}
	}
}

func TestTheFleetHasOneMachineWithPower(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := writeFleet(settings{machines: 300, install: time.Minute, reboot: time.Second}, path); err != nil {
		t.Fatal(err)
	}
	loaded, err := fleet.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	on := 0
	for _, m := range loaded.Machines {
		switch {
		case m.State == fleet.StateMaintenance:
			on++
		case m.Timings.Install != fleet.Duration(time.Minute) || m.Timings.Reboot != fleet.Duration(time.Second):
			t.Errorf("worker %s takes %+v", m.Name, m.Timings)
		}
	}
	if on != 1 || len(loaded.Machines) != 301 {
		t.Errorf("%d machines, %d with power; want 301 and 1", len(loaded.Machines), on)
	}
}

func TestWhatOfProcIsRead(t *testing.T) {
	t.Parallel()
	peak, err := parseMemory([]byte("Name:\tx\nVmPeak:\t  999999 kB\nVmHWM:\t  153600 kB\nVmRSS:\t 1 kB\n"), peakField)
	if err != nil || peak != 150 {
		t.Errorf("peak: want 150 MiB, got %v, %v", peak, err)
	}
	if _, err := parseMemory([]byte("Name:\tx\n"), peakField); err == nil {
		t.Error("a status without a peak was read")
	}
	line := "42 (a name) with) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 8 0 100 1 2 3"
	got, err := parseStat(line)
	if err != nil || got.parent != 7 || got.cpu != 2*time.Second {
		t.Errorf("%q: want parent 7 and 2s, got %+v, %v", line, got, err)
	}
	if _, err := parseStat("42 (x) S 7"); err == nil {
		t.Error("half a line was read")
	}
	stats := map[int]stat{1: {parent: 0}, 5: {parent: 1}, 7: {parent: 5}, 9: {parent: 1}}
	for pid, want := range map[int]bool{5: true, 7: true, 9: false, 1: false} {
		if descends(pid, 5, stats) != want {
			t.Errorf("process %d descends from 5: want %v", pid, want)
		}
	}
}

func TestTheControllersFinishedWritesAreCounted(t *testing.T) {
	t.Parallel()
	event := func(user, stage, verb, resource, subresource, code string) string {
		return `{"stage":"` + stage + `","verb":"` + verb + `","user":{"username":"` + user + `"},"objectRef":{"resource":"` + resource +
			`","subresource":"` + subresource + `"},"responseStatus":{"code":` + code + "}}\n"
	}
	log := event(controllerUser, "RequestReceived", "update", "talosmachines", "status", "0") +
		event(controllerUser, "ResponseComplete", "update", "talosmachines", "status", "200") +
		event(controllerUser, "ResponseComplete", "update", "talosmachines", "status", "200") +
		event(controllerUser, "ResponseComplete", "update", "talosmachines", "status", "409") +
		event(controllerUser, "ResponseComplete", "create", "events", "", "201") +
		event(controllerUser, "ResponseComplete", "get", "secrets", "", "200") +
		event("operator", "ResponseComplete", "update", "talosmachines", "approval", "200")
	got := writes{}
	if err := got.read(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	want := writes{"update talosmachines/status": 2, "update talosmachines/status (409)": 1, "create events": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got.total() != 4 {
		t.Errorf("total: want 4, got %d", got.total())
	}
	since := got.since(writes{"update talosmachines/status": 2, "create events": 1})
	if diff := cmp.Diff(writes{"update talosmachines/status (409)": 1}, since); diff != "" {
		t.Errorf("writes since (-want +got):\n%s", diff)
	}
}

func TestMomentsAreThoseSeenFirst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	o := &observer{addresses: map[string]bool{"127.0.0.1": true}, now: func() time.Time { return now }, machines: map[string]*moments{}}
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	m.Status.Addresses = []string{"127.0.0.9"}
	o.see(m)
	m.Status.Addresses, m.Status.Inventory = []string{"127.0.0.1"}, &v1alpha1.MachineInventory{}
	o.see(m)
	for range 2 {
		now = now.Add(time.Second)
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
		o.see(m)
	}
	if got := o.between(found, ready); len(got) != 1 || got[0] != time.Second {
		t.Errorf("from found to ready: want 1s once, got %v", got)
	}
	if o.count(approved) != 0 || o.count(found) != 1 || !o.last(ready).Equal(time.Unix(1001, 0)) {
		t.Errorf("moments: %+v", o.machines["m"])
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	times := []time.Duration{4, 1, 3, 2}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := at(times, share); got != want {
			t.Errorf("share %v: want %d, got %d", share, want, got)
		}
	}
	if got := at(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

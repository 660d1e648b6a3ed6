// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// images are the images that a machine pulled, by store and reference, with their digests. They outlive reboots.
type images struct {
	mu   sync.Mutex
	have map[common.ContainerdNamespace]map[string]string
}

func (i *images) add(store common.ContainerdNamespace, reference, digest string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.have == nil {
		i.have = map[common.ContainerdNamespace]map[string]string{}
	}
	if i.have[store] == nil {
		i.have[store] = map[string]string{}
	}
	i.have[store][reference] = digest
}

func (i *images) has(store common.ContainerdNamespace, reference string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.have[store][reference] != ""
}

func (i *images) list(store common.ContainerdNamespace) (references []string, digests map[string]string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.have[store])), maps.Clone(i.have[store])
}

// registryDown is what containerd says when nothing listens.
const registryDown = "down"

var referencePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._:/-]*[a-z0-9])?(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$`)

const missingTag = ":missing"

// imageSize is what every image has.
const imageSize = 100 << 20

// pull takes the time of a pull and gives the reference pinned to a digest. Its one layer is told in four parts.
func (b *boot) pull(ctx context.Context, store common.ContainerdNamespace, reference string, progress func(status machine.ImageServicePullLayerProgress_Status, offset int64) error) (string, error) {
	if !referencePattern.MatchString(reference) {
		return "", status.Errorf(codes.InvalidArgument, "failed to parse image reference: %s", reference)
	}
	const parts = 4
	took, fault := b.node.faults.pull()
	if took == 0 {
		took = time.Duration(b.node.machine().Timings.Pull)
	}
	for part := range parts {
		if err := progress(machine.ImageServicePullLayerProgress_DOWNLOADING, imageSize/parts*int64(part)); err != nil {
			return "", err
		}
		if err := work(ctx, took/parts); err != nil {
			return "", err
		}
	}
	switch {
	case strings.HasSuffix(reference, missingTag) || fault == "missing":
		return "", status.Errorf(codes.NotFound, "error pulling image: %s: not found", reference)
	case fault == registryDown:
		return "", fmt.Errorf("error pulling image: failed to do request: Head %q: dial tcp: connect: connection refused", reference)
	}
	if err := progress(machine.ImageServicePullLayerProgress_EXTRACT_COMPLETE, imageSize); err != nil {
		return "", err
	}
	name, digest := pinned(reference)
	b.node.images.add(store, reference, digest)
	b.node.images.add(store, name, digest)
	b.did(Deed{What: DeedPull, Image: reference})
	return name, nil
}

// pinned is a reference with its digest.
func pinned(reference string) (name, digest string) {
	if _, digest, found := strings.Cut(reference, "@"); found {
		return reference, digest
	}
	sum := sha256.Sum256([]byte(reference))
	digest = "sha256:" + hex.EncodeToString(sum[:])
	return reference + "@" + digest, digest
}

// FailPull makes pulls end badly from now on: "missing" as an image that no registry has, "down" as a registry that
// doesn't answer; "" ends it.
func (n *Node) FailPull(how string) error {
	if how != "" && how != "missing" && how != registryDown {
		return fmt.Errorf("%q is none of missing and %s", how, registryDown)
	}
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.failPull = how
	return nil
}

// SlowPull makes each pull take a time; zero ends it.
func (n *Node) SlowPull(d time.Duration) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.slowPull = d
}

func (f *faults) pull() (time.Duration, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slowPull, f.failPull
}

// DropUpgrade breaks the connection of the next LifecycleService.Upgrade once the installer runs, which goes on.
func (n *Node) DropUpgrade() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.dropUpgrade = true
}

func (f *faults) takeDropUpgrade() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	drop := f.dropUpgrade
	f.dropUpgrade = false
	return drop
}

// SlowInstall makes each installer take a time; zero ends it.
func (n *Node) SlowInstall(d time.Duration) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.slowInstall = d
}

// installTime is how long an installer takes.
func (b *boot) installTime() time.Duration {
	b.node.faults.mu.Lock()
	defer b.node.faults.mu.Unlock()
	if d := b.node.faults.slowInstall; d > 0 {
		return d
	}
	return time.Duration(b.node.machine().Timings.Install)
}

// FailUpgradedBoot makes a system fail to boot that was installed over another one and was never ready, or ends that: the
// machine then goes back to the old one by itself (Talos: internal/app/machined/revert.go).
func (n *Node) FailUpgradedBoot(on bool) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.failUpgradedBoot = on
}

func (f *faults) upgradedBootFails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failUpgradedBoot
}

// OtherSchematic has the next systems that are installed be of another schematic than their image names, as from a
// registry whose tag was moved; "" ends it.
func (n *Node) OtherSchematic(id string) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.otherSchematic = id
}

func (f *faults) schematic(of string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.otherSchematic != "" {
		return f.otherSchematic
	}
	return of
}

// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ImageStore is one of a machine's two stores of images.
type ImageStore int

// The stores. Installers and kubelets are run from Talos' own, everything else of Kubernetes from the container runtime's.
const (
	SystemImages ImageStore = iota
	KubernetesImages
)

// containerd chooses the store. Source: Talos, internal/app/machined: CONTAINERD with NS_CRI is refused.
func (s ImageStore) containerd() *common.ContainerdInstance {
	if s == KubernetesImages {
		return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_CRI}
	}
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

const (
	// pullIdle is how long a pull may bring no word. A machine that waits for a registry says nothing meanwhile; its own
	// bound for a request is below this.
	pullIdle = 5 * time.Minute
	// maxListed bounds the images that a machine lists.
	maxListed = 10_000
)

// PullImage has the machine pull an image into one of its stores, and tells progress for people. It takes as long as
// something comes. Machines without ImageService (up to Talos 1.12) pull by the older call, which tells nothing until it
// is done. Nothing is retried: an image that isn't there is NotFound at once.
// Source: Talos, api/machine/image.proto; internal/app/machined/internal/server/v1alpha1.
func (n *node) PullImage(ctx context.Context, store ImageStore, reference string, progress func(text string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(pullIdle, func() { cancel(fmt.Errorf("nothing came for %s", pullIdle)) })
	defer stalled.Stop()
	err := n.pull(ctx, store, reference, func(text string) {
		stalled.Reset(pullIdle)
		progress(text)
	})
	if status.Code(err) == codes.Unimplemented {
		stalled.Reset(pullIdle)
		err = n.pullLegacy(ctx, store, reference)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &CallError{Address: n.channel.address, What: "pull of image " + reference, Err: err}
}

func (n *node) pull(ctx context.Context, store ImageStore, reference string, progress func(string)) error {
	stream, err := machineapi.NewImageServiceClient(n.channel).Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: store.containerd(), ImageRef: reference})
	if err != nil {
		return err
	}
	layers := map[string]*machineapi.ImageServicePullLayerProgress{}
	for named := false; ; {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if !named {
				return errors.New("the machine ended the pull without naming the image")
			}
			return nil
		}
		if err != nil {
			return err
		}
		named = named || answer.GetName() != ""
		if layer := answer.GetPullProgress(); layer != nil && (len(layers) < maxLayers || layers[layer.GetLayerId()] != nil) {
			layers[layer.GetLayerId()] = layer.GetProgress()
			progress(pullProgress(layers))
		}
	}
}

// maxLayers bounds the layers whose progress is kept.
const maxLayers = 128

// pullProgress sums the layers up.
func pullProgress(layers map[string]*machineapi.ImageServicePullLayerProgress) string {
	done, offset, total := 0, int64(0), int64(0)
	for _, layer := range layers {
		switch layer.GetStatus() {
		case machineapi.ImageServicePullLayerProgress_EXTRACT_COMPLETE, machineapi.ImageServicePullLayerProgress_ALREADY_EXISTS:
			done++
		}
		offset, total = offset+layer.GetOffset(), total+layer.GetTotal()
	}
	const mebibyte = 1 << 20
	return fmt.Sprintf("%d of %d layers, %d of %d MiB", done, len(layers), offset/mebibyte, total/mebibyte)
}

func (n *node) pullLegacy(ctx context.Context, store ImageStore, reference string) error {
	//lint:ignore SA1019 the only way up to 1.12
	answer, err := n.machine.ImagePull(ctx, &machineapi.ImagePullRequest{Namespace: store.containerd().GetNamespace(), Reference: reference})
	if err != nil {
		return err
	}
	for _, message := range answer.GetMessages() {
		if text := message.GetMetadata().GetError(); text != "" {
			return errors.New(oneLine(text))
		}
	}
	return nil
}

// HasImage tells whether an image of this very reference is in one of the machine's stores.
func (n *node) HasImage(ctx context.Context, store ImageStore, reference string) (bool, error) {
	return read(ctx, n, "listing the images", func(ctx context.Context) (bool, error) {
		has, err := n.hasImage(ctx, store, reference)
		if status.Code(err) == codes.Unimplemented {
			return n.hasImageLegacy(ctx, store, reference)
		}
		return has, err
	})
}

func (n *node) hasImage(ctx context.Context, store ImageStore, reference string) (bool, error) {
	stream, err := machineapi.NewImageServiceClient(n.channel).List(ctx, &machineapi.ImageServiceListRequest{Containerd: store.containerd()})
	if err != nil {
		return false, err
	}
	return listed(func() (string, error) {
		image, err := stream.Recv()
		return image.GetName(), err
	}, reference)
}

func (n *node) hasImageLegacy(ctx context.Context, store ImageStore, reference string) (bool, error) {
	//lint:ignore SA1019 the only way up to 1.12
	stream, err := n.machine.ImageList(ctx, &machineapi.ImageListRequest{Namespace: store.containerd().GetNamespace()})
	if err != nil {
		return false, err
	}
	return listed(func() (string, error) {
		image, err := stream.Recv()
		if text := image.GetMetadata().GetError(); err == nil && text != "" {
			err = errors.New(oneLine(text))
		}
		return image.GetName(), err
	}, reference)
}

// listed reads a list to its end, so that its connection is free for other calls.
func listed(next func() (string, error), reference string) (bool, error) {
	found := false
	for range maxListed {
		name, err := next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return false, err
		}
		found = found || name == reference
	}
	return found, fmt.Errorf("the machine lists more than %d images", maxListed)
}

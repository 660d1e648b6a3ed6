// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// imageService is ImageService. There is no registry: any well-formed reference can be pulled, but for tags that are
// called "missing", which no registry has, and what a test has asked to fail.
type imageService struct {
	machine.UnimplementedImageServiceServer
	boot *boot
}

// checkInstance is the choice of a containerd, with Talos' refusals.
func checkInstance(c *common.ContainerdInstance) error {
	switch c.GetNamespace() {
	case common.ContainerdNamespace_NS_SYSTEM:
	case common.ContainerdNamespace_NS_CRI:
		if c.GetDriver() == common.ContainerDriver_CONTAINERD {
			return status.Errorf(codes.InvalidArgument, "unsupported combination of containerd driver %s and namespace %s", c.GetDriver(), c.GetNamespace())
		}
	default:
		return status.Errorf(codes.InvalidArgument, "invalid containerd namespace %s", c.GetNamespace())
	}
	return nil
}

// List implements ImageService.
func (s *imageService) List(in *machine.ImageServiceListRequest, srv grpc.ServerStreamingServer[machine.ImageServiceListResponse]) error {
	if err := checkInstance(in.GetContainerd()); err != nil {
		return err
	}
	references, digests := s.boot.node.images.list(in.GetContainerd().GetNamespace())
	for _, reference := range references {
		if err := srv.Send(&machine.ImageServiceListResponse{Name: reference, Digest: digests[reference], Size: imageSize}); err != nil {
			return err
		}
	}
	return nil
}

// Pull implements ImageService.
func (s *imageService) Pull(in *machine.ImageServicePullRequest, srv grpc.ServerStreamingServer[machine.ImageServicePullResponse]) error {
	if err := checkInstance(in.GetContainerd()); err != nil {
		return err
	}
	progress := func(status machine.ImageServicePullLayerProgress_Status, offset int64) error {
		return srv.Send(&machine.ImageServicePullResponse{Response: &machine.ImageServicePullResponse_PullProgress{PullProgress: &machine.ImageServicePullProgress{
			LayerId: "layer", Progress: &machine.ImageServicePullLayerProgress{Status: status, Offset: offset, Total: imageSize},
		}}})
	}
	name, err := s.boot.pull(srv.Context(), in.GetContainerd().GetNamespace(), in.GetImageRef(), progress)
	if err != nil {
		return err
	}
	return srv.Send(&machine.ImageServicePullResponse{Response: &machine.ImageServicePullResponse_Name{Name: name}})
}

// Import implements ImageService.
func (s *imageService) Import(srv grpc.ClientStreamingServer[machine.ImageServiceImportRequest, machine.ImageServiceImportResponse]) error {
	first, err := srv.Recv()
	if errors.Is(err, io.EOF) || (err == nil && first.GetContainerd() == nil) {
		return status.Error(codes.InvalidArgument, "containerd instance is required")
	}
	if err != nil {
		return err
	}
	if err := checkInstance(first.GetContainerd()); err != nil {
		return err
	}
	for {
		if _, err := srv.Recv(); errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "no images imported from archive")
		} else if err != nil {
			return err
		}
	}
}

// Remove implements ImageService.
func (s *imageService) Remove(_ context.Context, in *machine.ImageServiceRemoveRequest) (*emptypb.Empty, error) {
	if err := checkInstance(in.GetContainerd()); err != nil {
		return nil, err
	}
	return nil, status.Errorf(codes.NotFound, "image %s not found", in.GetImageRef())
}

// Verify implements ImageService; without a policy every image may run.
func (s *imageService) Verify(_ context.Context, in *machine.ImageServiceVerifyRequest) (*machine.ImageServiceVerifyResponse, error) {
	if !referencePattern.MatchString(in.GetImageRef()) {
		return nil, status.Errorf(codes.InvalidArgument, "image reference is invalid: could not parse reference: %s", in.GetImageRef())
	}
	return &machine.ImageServiceVerifyResponse{}, nil
}

func checkNamespace(ns common.ContainerdNamespace) error {
	if ns != common.ContainerdNamespace_NS_CRI && ns != common.ContainerdNamespace_NS_SYSTEM {
		return status.Errorf(codes.InvalidArgument, "invalid namespace %s", ns)
	}
	return nil
}

// ImageList implements MachineService.
func (s *machineService) ImageList(in *machine.ImageListRequest, srv machine.MachineService_ImageListServer) error {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return err
	}
	references, digests := s.boot.node.images.list(in.GetNamespace())
	for _, reference := range references {
		if err := srv.Send(&machine.ImageListResponse{Name: reference, Digest: digests[reference], Size: imageSize}); err != nil {
			return err
		}
	}
	return nil
}

// ImagePull implements MachineService.
func (s *machineService) ImagePull(ctx context.Context, in *machine.ImagePullRequest) (*machine.ImagePullResponse, error) {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}
	silent := func(machine.ImageServicePullLayerProgress_Status, int64) error { return nil }
	if _, err := s.boot.pull(ctx, in.GetNamespace(), in.GetReference(), silent); err != nil {
		return nil, err
	}
	return &machine.ImagePullResponse{Messages: []*machine.ImagePull{{}}}, nil
}

// lifecycleService is LifecycleService: it runs the installer and nothing else.
type lifecycleService struct {
	machine.UnimplementedLifecycleServiceServer
	boot *boot
}

// begin takes the one right to install.
func (s *lifecycleService) begin() (end func(), err error) {
	select {
	case s.boot.installing <- struct{}{}:
		return func() { <-s.boot.installing }, nil
	default:
		return nil, status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	}
}

func message(text string) *machine.LifecycleServiceInstallProgress {
	return &machine.LifecycleServiceInstallProgress{Response: &machine.LifecycleServiceInstallProgress_Message{Message: text}}
}

// report sends the installer's output; its failure is an exit code, not an error of the call.
func report(result error, send func(*machine.LifecycleServiceInstallProgress) error) error {
	code := int32(0)
	if result != nil {
		code = 1
		if err := send(message(result.Error())); err != nil {
			return err
		}
	}
	return send(&machine.LifecycleServiceInstallProgress{Response: &machine.LifecycleServiceInstallProgress_ExitCode{ExitCode: code}})
}

// Install implements LifecycleService.
func (s *lifecycleService) Install(in *machine.LifecycleServiceInstallRequest, srv grpc.ServerStreamingServer[machine.LifecycleServiceInstallResponse]) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	installed, err := s.boot.installed()
	if err != nil {
		return err
	}
	if installed != nil {
		return status.Error(codes.AlreadyExists, "machine is already installed")
	}
	image := in.GetSource().GetImageName()
	if image == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}
	if in.GetDestination().GetDisk() == "" {
		return status.Error(codes.InvalidArgument, "destination disk is required")
	}
	target, err := s.boot.diskByPath(in.GetDestination().GetDisk())
	if err != nil {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("invalid disk path: %v", err))
	}
	send := func(p *machine.LifecycleServiceInstallProgress) error {
		return srv.Send(&machine.LifecycleServiceInstallResponse{Progress: p})
	}
	if err := send(message("running Talos installer")); err != nil {
		return err
	}
	return report(s.boot.writeSystem(srv.Context(), target, image, true), send)
}

// Upgrade implements LifecycleService. The installer goes on when its caller is gone: only what it says is lost then
// (Talos: internal/app/lifecycle, which waits for the container with a context of its own).
func (s *lifecycleService) Upgrade(in *machine.LifecycleServiceUpgradeRequest, srv grpc.ServerStreamingServer[machine.LifecycleServiceUpgradeResponse]) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	b := s.boot
	installed, err := b.installed()
	if err != nil {
		return err
	}
	if installed == nil {
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	}
	image := in.GetSource().GetImageName()
	if image == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}
	b.kernelLog.printf("[talos] starting upgrade: installer_image=%s, system_disk=%s", image, installed.Device)
	if !b.node.images.has(in.GetContainerd().GetNamespace(), image) {
		return status.Errorf(codes.Internal, "upgrade failed: installer image %q not found in containerd store", image)
	}
	send := func(p *machine.LifecycleServiceInstallProgress) error {
		_ = srv.Send(&machine.LifecycleServiceUpgradeResponse{Progress: p}) // whoever is gone hears nothing
		return nil
	}
	if err := send(message("running Talos installer")); err != nil {
		return err
	}
	if b.node.faults.takeDropUpgrade() {
		b.node.traffic.breakAll()
	}
	failed := b.upgradeSystem(b.ctx, image)
	if failed != nil {
		b.kernelLog.printf("[talos] upgrade failed: exit_code=1")
	} else {
		b.kernelLog.printf("[talos] upgrade completed successfully: exit_code=0")
	}
	return report(failed, send)
}

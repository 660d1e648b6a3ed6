// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// imageService is ImageService. There is no registry: any well-formed reference can be pulled, but for tags that are
// called "missing", which no registry has.
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

var referencePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._:/-]*[a-z0-9])?(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$`)

const missingTag = ":missing"

// pull takes the time of a pull and gives the reference pinned to a digest.
func (b *boot) pull(ctx context.Context, reference string) (string, error) {
	if !referencePattern.MatchString(reference) {
		return "", status.Errorf(codes.InvalidArgument, "failed to parse image reference: %s", reference)
	}
	if err := work(ctx, time.Duration(b.node.machine().Timings.Pull)); err != nil {
		return "", err
	}
	if strings.HasSuffix(reference, missingTag) {
		return "", status.Errorf(codes.NotFound, "error pulling image: %s: not found", reference)
	}
	if strings.Contains(reference, "@") {
		return reference, nil
	}
	sum := sha256.Sum256([]byte(reference))
	return reference + "@sha256:" + hex.EncodeToString(sum[:]), nil
}

// List implements ImageService.
func (s *imageService) List(in *machine.ImageServiceListRequest, _ grpc.ServerStreamingServer[machine.ImageServiceListResponse]) error {
	return checkInstance(in.GetContainerd())
}

// Pull implements ImageService.
func (s *imageService) Pull(in *machine.ImageServicePullRequest, srv grpc.ServerStreamingServer[machine.ImageServicePullResponse]) error {
	if err := checkInstance(in.GetContainerd()); err != nil {
		return err
	}
	name, err := s.boot.pull(srv.Context(), in.GetImageRef())
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
func (s *machineService) ImageList(in *machine.ImageListRequest, _ machine.MachineService_ImageListServer) error {
	return checkNamespace(in.GetNamespace())
}

// ImagePull implements MachineService.
func (s *machineService) ImagePull(ctx context.Context, in *machine.ImagePullRequest) (*machine.ImagePullResponse, error) {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}
	if _, err := s.boot.pull(ctx, in.GetReference()); err != nil {
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

// Upgrade implements LifecycleService.
func (s *lifecycleService) Upgrade(in *machine.LifecycleServiceUpgradeRequest, srv grpc.ServerStreamingServer[machine.LifecycleServiceUpgradeResponse]) error {
	end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	installed, err := s.boot.installed()
	if err != nil {
		return err
	}
	if installed == nil {
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	}
	if in.GetSource().GetImageName() == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}
	send := func(p *machine.LifecycleServiceInstallProgress) error {
		return srv.Send(&machine.LifecycleServiceUpgradeResponse{Progress: p})
	}
	if err := send(message("running Talos installer")); err != nil {
		return err
	}
	return report(s.boot.upgradeSystem(srv.Context(), in.GetSource().GetImageName()), send)
}

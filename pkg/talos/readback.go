// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configapi "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"sigs.k8s.io/yaml"
)

const (
	// maxKubeconfig is the size of the largest kubeconfig that is read.
	maxKubeconfig = 1 << 20
	// maxBootID is the size of the file with the boot id: 36 characters and a line feed.
	maxBootID = 128
	// bootIDPath is where the kernel says which boot this is.
	bootIDPath = "/proc/sys/kernel/random/boot_id"
	// bootIDType and bootIDID are of Talos 1.14; the machinery of 1.13 doesn't know them.
	bootIDType = "BootIDs.runtime.talos.dev"
	bootIDID   = "boot-id"
)

func (n *node) RunningConfiguration(ctx context.Context) ([]byte, error) {
	return read(ctx, n, "reading the running configuration", func(ctx context.Context) ([]byte, error) {
		raw, err := n.reader.getRaw(ctx, config.NamespaceName, config.MachineConfigType, config.ActiveID)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			return nil, status.Error(codes.NotFound, "the machine runs no configuration")
		}
		return configurationBytes(raw)
	})
}

// configurationBytes takes the configuration's bytes out of their resource without decoding them: a configuration may
// hold documents of a newer Talos. The protocol buffer has the bytes as they are; the YAML has them as one string.
// Source: Talos, pkg/machinery/resources/config/machine_config.go. No error quotes what was read.
func configurationBytes(raw *cosi.Resource) ([]byte, error) {
	var spec configapi.MachineConfigSpec
	if err := proto.Unmarshal(raw.GetSpec().GetProtoSpec(), &spec); err == nil && len(spec.GetYamlMarshalled()) > 0 {
		return spec.GetYamlMarshalled(), nil
	}
	var text string
	if err := yaml.Unmarshal([]byte(raw.GetSpec().GetYamlSpec()), &text); err != nil || text == "" {
		return nil, errors.New("what the machine sent is no configuration")
	}
	return []byte(text), nil
}

// BootID reads the kernel's file, which needs os:admin; where that is refused, the resource that Talos has since 1.14.
func (n *node) BootID(ctx context.Context) (string, error) {
	return read(ctx, n, "reading the boot id", func(ctx context.Context) (string, error) {
		id, err := n.bootIDFile(ctx)
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unimplemented {
			return id, err
		}
		raw, rawErr := n.reader.getRaw(ctx, runtime.NamespaceName, bootIDType, bootIDID)
		if rawErr != nil || raw == nil {
			return "", errors.Join(err, rawErr)
		}
		return bootIDOf(raw)
	})
}

func (n *node) bootIDFile(ctx context.Context) (string, error) {
	stream, err := n.machine.Read(ctx, &machineapi.ReadRequest{Path: bootIDPath})
	if err != nil {
		return "", err
	}
	content, err := collect(stream, maxBootID)
	if err != nil {
		return "", err
	}
	return checkBootID(string(content))
}

func bootIDOf(raw *cosi.Resource) (string, error) {
	var spec struct {
		BootID string `json:"bootID"`
	}
	if err := yaml.Unmarshal([]byte(cut(raw.GetSpec().GetYamlSpec(), maxMessage)), &spec); err != nil {
		return "", errors.New("what the machine sent is no boot id")
	}
	return checkBootID(spec.BootID)
}

func checkBootID(text string) (string, error) {
	if text = strings.ToLower(clean(text)); text == "" {
		return "", errors.New("the machine sent an empty boot id")
	}
	return text, nil
}

func (n *node) Kubeconfig(ctx context.Context) ([]byte, error) {
	return read(ctx, n, "reading the kubeconfig", func(ctx context.Context) ([]byte, error) {
		stream, err := n.machine.Kubeconfig(ctx, &emptypb.Empty{})
		if err != nil {
			return nil, err
		}
		archive, err := collect(stream, maxKubeconfig)
		if err != nil {
			return nil, err
		}
		return untar(archive, "kubeconfig")
	})
}

// collect joins the chunks of a stream, up to a size.
func collect(stream interface{ Recv() (*common.Data, error) }, limit int) ([]byte, error) {
	var out bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		if err := chunkError(chunk); err != nil {
			return nil, err
		}
		if out.Len()+len(chunk.GetBytes()) > limit {
			return nil, fmt.Errorf("the machine sent more than %d bytes", limit)
		}
		out.Write(chunk.GetBytes())
	}
}

// untar returns a file of a gzipped tar archive.
func untar(archive []byte, name string) ([]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, errors.New("the machine sent no gzipped archive")
	}
	files := tar.NewReader(io.LimitReader(unzipped, 2*maxKubeconfig))
	for {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("the archive that the machine sent holds no file %s", name)
		}
		if strings.TrimPrefix(header.Name, "./") != name {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(files, maxKubeconfig+1))
		if err != nil || len(content) > maxKubeconfig {
			return nil, fmt.Errorf("the file %s that the machine sent is damaged or larger than %d bytes", name, maxKubeconfig)
		}
		return content, nil
	}
}

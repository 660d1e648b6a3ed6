// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry"
)

// Server is a server that is ready to run.
type Server struct {
	// Generic is the server of the library.
	Generic *genericapiserver.GenericAPIServer
	// Registry is the storage that it serves.
	Registry *registry.Registry
}

// New builds the server.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.generic.New("ichor-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("build server: %w", err)
	}
	resources, err := registry.New(Scheme, c.generic.RESTOptionsGetter, c.generic.Authorization.Authorizer, c.streams, c.gate...)
	if err != nil {
		return nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, Scheme, runtime.NewParameterCodec(Scheme), Codecs)
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = resources.Storage()
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("install group %s: %w", v1alpha1.GroupName, err)
	}
	generic.AddPostStartHookOrDie("ichor-slot-reaper", func(hook genericapiserver.PostStartHookContext) error {
		go resources.Reap(hook)
		go resources.Sweep(hook)
		collector().collect(hook, resources)
		return nil
	})
	return &Server{Generic: generic, Registry: resources}, nil
}

// Run serves until the context ends, and then shuts down gracefully.
func (s *Server) Run(ctx context.Context) error {
	return s.Generic.PrepareRun().RunWithContext(ctx)
}

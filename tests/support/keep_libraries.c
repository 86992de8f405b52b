/* For builds with the leak checker: libraries stay loaded, so that the reports name the library
 * (Open MPI unloads its plug-ins in MPI_Finalize, after which their leaks have no name to
 * suppress). */
int dlclose(void *handle);

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
